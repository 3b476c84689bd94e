#include "extension/tables/job_cursor.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "extension/connection/statement_call.h"

namespace lm {

absl::StatusOr<std::string> JobArgument(Connection& connection, const TableArguments& args) {
  ASSIGN_OR_RETURN(std::optional<std::string> name, args.Text(0));
  if (!name.has_value()) return absl::InvalidArgumentError("job is NULL");
  if (connection.only_counts()) {
    return absl::FailedPreconditionError(
        "it writes, which a query under lm_explain may not: explain the job's own query");
  }
  if (StatementCall::IsWithinAnother()) {
    return absl::FailedPreconditionError(
        "it writes, which a SELECT given to another function or table may not");
  }
  return *std::move(name);
}

absl::Status OnceMore(sqlite3* db, bool late, const absl::Status& status) {
  const bool in_transaction = sqlite3_get_autocommit(db) == 0;
  if (!late || in_transaction || !absl::IsFailedPrecondition(status)) return status;
  return absl::FailedPreconditionError(
      absl::StrCat(status.message(),
                   " (it could not be made in temp when the extension was loaded, because the "
                   "database was empty or locked; it is there now: run the statement once more)"));
}

}  // namespace lm
