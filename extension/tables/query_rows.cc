#include "extension/tables/query_rows.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "extension/host/given_statement.h"

namespace lm {
namespace {

constexpr char kWhat[] = "select_sql";

absl::Status Refused(absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat(kWhat, " must be one SELECT id, prompt [, system] that only reads: ", why));
}

}  // namespace

absl::StatusOr<QueryRows> QueryRows::Prepare(sqlite3* db, const std::string& sql) {
  ASSIGN_OR_RETURN(Statement select, PrepareSelectArgument(db, sql, kWhat));
  const int columns = sqlite3_column_count(select.get());
  if (columns < 2 || columns > 3) return Refused(absl::StrCat("it has ", columns, " columns"));
  return QueryRows(std::move(select));
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
  row.prompt = select_->CheckedText(1, "prompt");
  if (sqlite3_column_count(select_->get()) > 2) row.system = select_->CheckedText(2, "system");
  return row;
}

}  // namespace lm
