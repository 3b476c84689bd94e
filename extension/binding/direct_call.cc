#include "extension/binding/direct_call.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "extension/host/sql_tokens.h"
#include "extension/host/statement.h"

namespace lm {
namespace {

bool Calls(absl::string_view sql, absl::string_view function) {
  const std::vector<SqlToken> tokens = SqlTokens(sql);
  for (size_t i = 0; i + 1 < tokens.size(); ++i) {
    if (tokens[i].Names(function) && tokens[i + 1].Is("(")) return true;
  }
  return false;
}

absl::StatusOr<bool> TempCalls(sqlite3* db, absl::string_view function) {
  ASSIGN_OR_RETURN(Statement stored, Statement::Prepare(db,
                                                        "SELECT sql FROM sqlite_temp_master "
                                                        "WHERE type IN ('view', 'trigger')"));
  for (;;) {
    ASSIGN_OR_RETURN(const bool row, stored.Step());
    if (!row) return false;
    ASSIGN_OR_RETURN(const std::string sql, stored.Text(0));
    if (Calls(sql, function)) return true;
  }
}

}  // namespace

absl::Status CheckIsDirectCall(sqlite3* db, absl::string_view function) {
  for (sqlite3_stmt* s = sqlite3_next_stmt(db, nullptr); s != nullptr;
       s = sqlite3_next_stmt(db, s)) {
    if (sqlite3_stmt_busy(s) == 0) continue;
    const char* sql = sqlite3_sql(s);
    if (sql == nullptr) continue;  // an open BLOB
    if (Calls(sql, function)) return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const bool in_temp, TempCalls(db, function));
  if (in_temp) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("unsafe use of ", function,
                   "(): the statement does not call it, a CHECK constraint of a table does"));
}

}  // namespace lm
