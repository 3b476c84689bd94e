#include "extension/tables/embedded_rows.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "extension/batch/answer_queue.h"
#include "extension/tables/query_rows.h"

namespace lm {

absl::Status CheckAlikeLong(const EmbeddedRow& a, absl::string_view a_name, const EmbeddedRow& b,
                            absl::string_view b_name) {
  if (a.vector.size() == b.vector.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      a_name, ": a vector of ", a.vector.size(), " dimensions came, and one of ", b.vector.size(),
      " for ", b_name, ": they must be of one model, of the same length"));
}

absl::StatusOr<std::vector<EmbeddedRow>> EmbedRows(sqlite3* db, const std::string& sql,
                                                   absl::string_view name,
                                                   const Embedder& embedder) {
  ASSIGN_OR_RETURN(QueryRows select, QueryRows::PrepareTexts(db, sql, name));
  std::vector<EmbeddedRow> rows;
  std::optional<size_t> first;  // with a vector
  AnswerQueue queue;
  auto take = [&]() -> absl::Status {
    RETURN_IF_ERROR(queue.AwaitFront(db));
    const RowAnswer& answer = queue.front();
    const size_t at = rows.size() - queue.size();
    if (answer.null_prompt) {
      rows[at].text.reset();
    } else if (answer.generation.status.ok()) {
      ASSIGN_OR_RETURN(rows[at].vector, embedder.Vector(answer.generation));
      rows[at].squared_length = SquaredLength(rows[at].vector);
      if (!first.has_value()) first = at;
      RETURN_IF_ERROR(CheckAlikeLong(rows[at], absl::StrCat(name, ": row ", at + 1), rows[*first],
                                     absl::StrCat("row ", *first + 1)));
    } else if (embedder.on_error() != OnError::kError) {
      rows[at].text.reset();
    } else {
      const absl::Status failed = OfRow(static_cast<int64_t>(at) + 1, answer.generation.status);
      return absl::Status(failed.code(), absl::StrCat(name, ": ", failed.message()));
    }
    queue.Pop();
    return absl::OkStatus();
  };
  for (;;) {
    ASSIGN_OR_RETURN(std::optional<QueryRow> row, select.Next());
    if (!row.has_value()) break;
    if (!queue.HasRoom()) RETURN_IF_ERROR(take());
    rows.push_back({.id = std::move(row->id), .text = row->prompt.value_or(std::nullopt)});
    queue.Push(embedder.Row(std::move(row->prompt)));
  }
  while (!queue.empty()) RETURN_IF_ERROR(take());
  return rows;
}

absl::StatusOr<std::vector<EmbeddedRow>> TextRows(sqlite3* db, const std::string& sql,
                                                  absl::string_view name, OnError on_error) {
  ASSIGN_OR_RETURN(QueryRows select, QueryRows::PrepareTexts(db, sql, name));
  std::vector<EmbeddedRow> rows;
  for (;;) {
    ASSIGN_OR_RETURN(std::optional<QueryRow> row, select.Next());
    if (!row.has_value()) return rows;
    if (!row->prompt.ok() && on_error == OnError::kError) {
      const absl::Status failed =
          OfRow(static_cast<int64_t>(rows.size()) + 1, row->prompt.status());
      return absl::Status(failed.code(), absl::StrCat(name, ": ", failed.message()));
    }
    rows.push_back({.id = std::move(row->id), .text = row->prompt.value_or(std::nullopt)});
  }
}

}  // namespace lm
