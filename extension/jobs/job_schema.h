// The tables lm_jobs and lm_job_rows: jobs_table.cc says what their columns mean. (lm_job_batches
// is BatchStore's; what ties it to lm_jobs is among what an upgrade adds.)
#ifndef LM_EXTENSION_JOBS_JOB_SCHEMA_H_
#define LM_EXTENSION_JOBS_JOB_SCHEMA_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "extension/host/sqlite_api.h"
#include "extension/jobs/job_database.h"

namespace lm {

// Makes the tables in the database that `db` calls `schema`, where they are not there yet.
absl::Status CreateJobTables(sqlite3* db, absl::string_view schema);

// Adds what tables that an earlier version made have not. Begins a transaction where they lack
// something.
absl::Status UpgradeJobTables(JobDatabase& database);

}  // namespace lm

#endif  // LM_EXTENSION_JOBS_JOB_SCHEMA_H_
