#include "extension/read_only_select.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace lm {
namespace {

// Whether there is another statement: preparing spaces and comments gives none.
bool HasStatement(sqlite3* db, const char* sql) {
  sqlite3_stmt* statement = nullptr;
  const int code = sqlite3_prepare_v2(db, sql, -1, &statement, nullptr);
  const bool has = code != SQLITE_OK || statement != nullptr;
  sqlite3_finalize(statement);
  return has;
}

}  // namespace

absl::StatusOr<ReadOnlySelect> ReadOnlySelect::Prepare(sqlite3* db, const std::string& sql,
                                                       absl::string_view what) {
  auto refuse = [what](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat(what, " ", why));
  };
  sqlite3_stmt* raw = nullptr;
  const char* tail = nullptr;
  const int code =
      sqlite3_prepare_v2(db, sql.c_str(), static_cast<int>(sql.size()) + 1, &raw, &tail);
  Statement statement(raw);
  if (code == SQLITE_INTERRUPT) return absl::CancelledError("interrupted");
  if (code != SQLITE_OK) return refuse(absl::StrCat("does not compile: ", sqlite3_errmsg(db)));
  if (statement == nullptr) return refuse("is empty");
  if (tail != nullptr && HasStatement(db, tail)) return refuse("must be one statement");
  if (sqlite3_stmt_readonly(raw) == 0) return refuse("must be a SELECT: it may not write");
  if (sqlite3_stmt_isexplain(raw) != 0 || sqlite3_column_count(raw) == 0) {
    return refuse("must be a SELECT");
  }
  if (sqlite3_bind_parameter_count(raw) > 0) {
    return refuse("must have no parameters: write their values into it (format('%Q', ...))");
  }
  return ReadOnlySelect(std::move(statement));
}

absl::StatusOr<bool> ReadOnlySelect::Step() {
  const int code = sqlite3_step(statement_.get());
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  if (code == SQLITE_INTERRUPT) return absl::CancelledError("interrupted");
  return absl::AbortedError(sqlite3_errmsg(sqlite3_db_handle(statement_.get())));
}

}  // namespace lm
