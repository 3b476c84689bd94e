#include "extension/host/attach_check.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "engine/base/status_macros.h"
#include "extension/host/statement.h"

namespace lm {

absl::Status CheckMayAttach(sqlite3* db, const std::string& path) {
  if (sqlite3_limit(db, SQLITE_LIMIT_ATTACHED, -1) == 0) {
    return absl::PermissionDeniedError(
        absl::StrCat("'", path, "' may not be opened: SQLITE_LIMIT_ATTACHED is 0"));
  }
  // SQLite asks the authorizer while it compiles the statement. Where it answers SQLITE_IGNORE, the
  // program does nothing.
  const absl::Status denied =
      absl::PermissionDeniedError(absl::StrCat("'", path, "' may not be opened: not authorized"));
  const std::string sql =
      absl::StrCat("EXPLAIN ATTACH '", absl::StrReplaceAll(path, {{"'", "''"}}), "' AS lm_memo");
  absl::StatusOr<Statement> program = Statement::Prepare(db, sql);
  if (absl::IsPermissionDenied(program.status())) return denied;
  RETURN_IF_ERROR(program.status());
  for (;;) {
    ASSIGN_OR_RETURN(const bool row, program->Step());
    if (!row) return denied;
    ASSIGN_OR_RETURN(const std::string operand, program->Text(5));
    if (absl::StrContains(operand, "sqlite_attach")) return absl::OkStatus();
  }
}

}  // namespace lm
