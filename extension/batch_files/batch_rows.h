// BatchRows: a job's rows as batch files see them: by their numbers.
#ifndef LM_EXTENSION_BATCH_FILES_BATCH_ROWS_H_
#define LM_EXTENSION_BATCH_FILES_BATCH_ROWS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "extension/host/statement.h"
#include "extension/jobs/found_job.h"
#include "extension/jobs/job_database.h"
#include "extension/jobs/job_store.h"

namespace lm {

// Which rows: those that wait, with numbers in [first, last], and the failed ones where they are
// wanted, too.
struct BatchRange {
  int64_t first = 1;
  int64_t last = INT64_MAX;
  bool failed = false;
  bool submitted = true;  // those, too, that are in a batch of a server
};

// Has the rows that runs which are gone have claimed wait again.
absl::Status RecoverRows(FoundJob& job);

// Not thread-safe.
class BatchRows {
 public:
  // REQUIRES: both outlive it.
  BatchRows(JobDatabase* database, JobStore* store) : database_(*database), store_(*store) {}

  // How many rows the range has.
  absl::StatusOr<int64_t> Count(const BatchRange& range);
  // Up to `most` of the range, in the order of their numbers; fewer where they are long, and none
  // only where none is left.
  absl::StatusOr<std::vector<JobRow>> Read(const BatchRange& range, int64_t most);

  struct Found {
    JobRow row;
    std::string id = {};
    std::string state = {};
  };
  // nullopt where the job has no row of that number.
  absl::StatusOr<std::optional<Found>> Find(int64_t number);

  // Claims a row that waits, or has failed, for the store's worker, and has the store complete it.
  // kLost: another run works on it. REQUIRES: inside JobDatabase::Transact.
  absl::StatusOr<JobStore::Outcome> Complete(int64_t number, JobAnswer answer);

 private:
  JobDatabase& database_;
  JobStore& store_;
  Statement read_, find_, take_;
};

}  // namespace lm

#endif  // LM_EXTENSION_BATCH_FILES_BATCH_ROWS_H_
