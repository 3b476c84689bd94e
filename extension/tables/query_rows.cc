#include "extension/tables/query_rows.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "extension/host/given_statement.h"

namespace lm {
namespace {

absl::StatusOr<Statement> PrepareOf(sqlite3* db, const std::string& sql, absl::string_view name,
                                    absl::string_view columns, int most) {
  ASSIGN_OR_RETURN(Statement select, PrepareSelectArgument(db, sql, name));
  const int count = sqlite3_column_count(select.get());
  if (count >= 2 && count <= most) return select;
  return absl::InvalidArgumentError(absl::StrCat(name, " must be one SELECT ", columns,
                                                 " that only reads: it has ", count, " columns"));
}

}  // namespace

absl::StatusOr<QueryRows> QueryRows::Prepare(sqlite3* db, const std::string& sql) {
  ASSIGN_OR_RETURN(Statement select, PrepareOf(db, sql, "select_sql", "id, prompt [, system]", 3));
  return QueryRows(std::move(select), "prompt");
}

absl::StatusOr<QueryRows> QueryRows::PrepareTexts(sqlite3* db, const std::string& sql,
                                                  absl::string_view name) {
  ASSIGN_OR_RETURN(Statement select, PrepareOf(db, sql, name, "id, text", 2));
  return QueryRows(std::move(select), "text");
}

absl::StatusOr<std::optional<QueryRow>> QueryRows::Next() {
  if (!select_.has_value()) return std::nullopt;
  absl::StatusOr<bool> found = select_->Step();
  if (!found.ok() || !*found) {
    select_.reset();
    RETURN_IF_ERROR(found.status());
    return std::nullopt;
  }
  QueryRow row;
  // A value of its own: SQLite does not let one be read that still belongs to the row.
  row.id.reset(sqlite3_value_dup(select_->Value(0)));
  if (row.id == nullptr) return absl::ResourceExhaustedError("out of memory");
  row.prompt = select_->CheckedText(1, text_name_);
  if (sqlite3_column_count(select_->get()) > 2) row.system = select_->CheckedText(2, "system");
  return row;
}

}  // namespace lm
