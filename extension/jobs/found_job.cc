#include "extension/jobs/found_job.h"

#include <optional>
#include <string>
#include <utility>

#include "engine/base/status_macros.h"
#include "extension/connection/statement_call.h"
#include "extension/host/statement.h"
#include "extension/jobs/job_schema.h"

namespace lm {
namespace {

absl::StatusOr<FoundJob> FindIn(sqlite3* user, const std::string& schema, absl::string_view job) {
  FoundJob found;
  ASSIGN_OR_RETURN(found.database, JobDatabase::Open(user, schema));
  absl::StatusOr<std::unique_ptr<JobStore>> store = JobStore::Open(found.database.get(), job);
  RETURN_IF_ERROR(found.database->Locked(store.status(), /*by_readers=*/false));
  found.store = *std::move(store);
  return found;
}

}  // namespace

absl::StatusOr<FoundJob> FindJob(sqlite3* user, absl::string_view job,
                                 const std::optional<std::string>& database) {
  if (database.has_value()) return FindIn(user, *database, job);
  absl::StatusOr<FoundJob> found = FindIn(user, "main", job);
  if (!absl::IsNotFound(found.status())) return found;
  constexpr int kFirstAttached = 2, kNumber = 0, kName = 1;
  ASSIGN_OR_RETURN(Statement databases, Statement::Prepare(user, "PRAGMA database_list"));
  for (;;) {
    ASSIGN_OR_RETURN(const bool row, databases.Step());
    if (!row) return found;
    if (databases.Integer(kNumber) < kFirstAttached) continue;
    ASSIGN_OR_RETURN(const std::string schema, databases.Text(kName));
    // A database that cannot be looked at may have any jobs.
    absl::StatusOr<FoundJob> here = FindIn(user, schema, job);
    if (here.ok()) return here;
  }
}

absl::StatusOr<FoundJob> OpenJob(Connection& connection, absl::string_view job,
                                 const std::optional<std::string>& database, bool asks_again) {
  ASSIGN_OR_RETURN(FoundJob found, FindJob(connection.db(), job, database));
  if (const std::shared_ptr<RunningWork> work = StatementCall::Work()) {
    work->BecomeJob(std::string(job));
  }
  RETURN_IF_ERROR(found.database->CheckWritable());
  RETURN_IF_ERROR(found.database->CheckUsersLocks());
  if (found.database->own()) RETURN_IF_ERROR(connection.RegisterPure(found.database->db()));
  RETURN_IF_ERROR(found.store->Prepare(asks_again));
  RETURN_IF_ERROR(UpgradeJobTables(*found.database));
  return found;
}

}  // namespace lm
