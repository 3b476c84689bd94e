// SubmittedRows: which of a job's rows are in batches of a server that have not ended (BatchStore).
// They wait, and no run claims them: until a batch has ended, its server may answer all that is
// between its first row and its last.
//
//   SubmittedRows submitted(&database);
//   RETURN_IF_ERROR(submitted.Read("label"));
//   if (submitted.Contains(number)) continue;
#ifndef LM_EXTENSION_JOBS_SUBMITTED_ROWS_H_
#define LM_EXTENSION_JOBS_SUBMITTED_ROWS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "extension/jobs/job_counts.h"
#include "extension/jobs/job_database.h"

namespace lm {

// The batches as they were last read. Not thread-safe.
class SubmittedRows {
 public:
  // REQUIRES: *database outlives it.
  explicit SubmittedRows(JobDatabase* database) : database_(*database) {}

  // Finds out what is under way.
  absl::Status Read(absl::string_view job);
  // Deletes what is known of the job's batches, whose rows are others from now on.
  absl::Status Forget(absl::string_view job);

  bool Contains(int64_t number) const;
  struct Range {
    int64_t first, last;
  };
  // The numbers up to `last` that are in no batch.
  std::vector<Range> Others(int64_t last) const;
  // How many rows of the job wait for a batch.
  absl::StatusOr<int64_t> Count(absl::string_view job);
  // What is to be said of a job whose rows are left to batches, or could be.
  std::string Told(const JobCounts& counts) const;

 private:
  // Whether any job was ever handed to a Batch API.
  absl::StatusOr<bool> HasTable() const;

  JobDatabase& database_;
  std::vector<Range> ranges_;  // in the order of their beginnings
  bool unsent_ = false;        // some of them may not have come to the server
};

}  // namespace lm

#endif  // LM_EXTENSION_JOBS_SUBMITTED_ROWS_H_
