// BatchStore: what a job has handed to a Batch API, in the table lm_job_batches of its database.
//
//   making -> submitting -> submitted -> ended
//
// A batch is written down before anything of it is done, and each step once it is done; `key` is
// what the server's own lists know it by. So a process that is killed at any moment leaves a batch
// of which another one can find out how far it came.
#ifndef LM_EXTENSION_BATCH_FILES_BATCH_STORE_H_
#define LM_EXTENSION_BATCH_FILES_BATCH_STORE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/remote/batch_api.h"
#include "extension/batch_files/batch_rows.h"
#include "extension/jobs/found_job.h"

namespace lm {

// A row of lm_job_batches.
struct JobBatch {
  int64_t number = 0;
  BatchRange range = {};   // of the job's rows
  std::string model = {};  // its name in lm_models
  std::string url = {};
  std::string key = {};
  std::string state = "making";
  std::string file = {};  // the server's numbers; empty: not known yet
  std::string batch = {};
  int64_t lines = 0;
  std::string status = {};  // as the server last said
  std::string note = {};    // what it said of what is wrong
};

// Not thread-safe. Every method is a transaction of its own.
class BatchStore {
 public:
  // REQUIRES: *job outlives it.
  explicit BatchStore(FoundJob* job) : job_(*job) {}

  // Makes the table where it is not there yet.
  absl::Status Prepare();
  // The job's, the oldest first.
  absl::StatusOr<std::vector<JobBatch>> All();

  // The rows of the job that no batch has which has not ended, as ranges.
  absl::StatusOr<std::vector<BatchRange>> Uncovered(bool failed);
  // Writes a new batch down, as this process's, with up to `most` of the rows of its range that
  // wait: sets its number, and where the range ends. From then on no run claims them. False where
  // another batch has rows of its range by now, or there are none.
  absl::StatusOr<bool> Add(JobBatch* batch, int64_t most);
  // Forgets one that has no lines.
  absl::Status Remove(const JobBatch& batch);
  // Makes a batch that is not submitted yet this process's. False where another one is at it.
  absl::StatusOr<bool> Take(JobBatch* batch);
  // Writes down what has changed of it, and that this process is still at it. Nothing where it has
  // ended by now: what another process saw of it is the last word.
  absl::Status Update(const JobBatch& batch);

 private:
  absl::StatusOr<Statement> Make(absl::string_view sql);

  FoundJob& job_;
};

}  // namespace lm

#endif  // LM_EXTENSION_BATCH_FILES_BATCH_STORE_H_
