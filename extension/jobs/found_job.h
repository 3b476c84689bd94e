// Where a job is: which of the user's databases has it.
//
//   ASSIGN_OR_RETURN(FoundJob job, FindJob(connection, "label", std::nullopt));
//   RETURN_IF_ERROR(job.database->Transact([&] { return job.store->Claim(...); }));
#ifndef LM_EXTENSION_JOBS_FOUND_JOB_H_
#define LM_EXTENSION_JOBS_FOUND_JOB_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "extension/connection/connection.h"
#include "extension/jobs/job_database.h"
#include "extension/jobs/job_store.h"

namespace lm {

struct FoundJob {
  std::unique_ptr<JobDatabase> database;
  std::unique_ptr<JobStore> store;  // refers to the database
};

// In `database`, or in the first that has a job of that name, as SQLite itself looks for a table
// without a database's name. Errors: those of JobDatabase::Open and JobStore::Open.
absl::StatusOr<FoundJob> FindJob(sqlite3* user, absl::string_view job,
                                 const std::optional<std::string>& database);

// The same, made ready to be worked on: its statements have been looked at (JobStore::Prepare), its
// tables are this version's. `asks_again`: its query is to be asked again. FailedPrecondition where
// its database is read-only, or the user's own locks are in the way.
absl::StatusOr<FoundJob> OpenJob(Connection& connection, absl::string_view job,
                                 const std::optional<std::string>& database,
                                 bool asks_again = false);

}  // namespace lm

#endif  // LM_EXTENSION_JOBS_FOUND_JOB_H_
