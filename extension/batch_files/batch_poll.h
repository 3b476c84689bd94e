// BatchPoll: asks after what a job has handed to a Batch API, and takes the answers.
//
//   ASSIGN_OR_RETURN(std::unique_ptr<BatchPoll> poll, BatchPoll::Begin(connection, "label", {}));
//   for (;;) {
//     ASSIGN_OR_RETURN(std::optional<BatchReport> report, poll->Advance());
//     if (!report.has_value()) break;
//   }
#ifndef LM_EXTENSION_BATCH_FILES_BATCH_POLL_H_
#define LM_EXTENSION_BATCH_FILES_BATCH_POLL_H_

#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "engine/base/monotonic_time.h"
#include "engine/remote/batch_api.h"
#include "extension/batch_files/batch_import.h"
#include "extension/batch_files/batch_server.h"
#include "extension/batch_files/batch_store.h"
#include "extension/connection/connection.h"
#include "extension/jobs/found_job.h"

namespace lm {

struct BatchReport {
  JobBatch batch;
  absl::Status asked = {};     // why the server did not tell, or not all; the batch's note says it
  RemoteBatch remote = {};     // as the server tells
  ImportCounts imported = {};  // what was taken of its answers now
  std::string refusal = {};    // the last line that no row could take
};

struct BatchPollOptions {
  absl::Duration most = absl::ZeroDuration();  // how long batches are waited for
  absl::Duration pause = absl::Seconds(10);    // between two rounds of questions
  std::optional<std::string> database = {};
};

// Not thread-safe; used while one statement runs.
class BatchPoll {
 public:
  // Errors: those of OpenJob.
  static absl::StatusOr<std::unique_ptr<BatchPoll>> Begin(Connection& connection,
                                                          absl::string_view job,
                                                          const BatchPollOptions& options);
  // The next of the job's batches that were submitted and have not ended; nullopt at the end, or
  // the first error where no batch could be asked after.
  absl::StatusOr<std::optional<BatchReport>> Advance();

 private:
  BatchPoll(Connection& connection, const BatchPollOptions& options, FoundJob job);

  // Begins another round, where something is waited for; false where the time is over.
  absl::StatusOr<bool> Again();
  absl::StatusOr<BatchReport> Ask(JobBatch batch);
  // These two put what the network says into the report; errors are of the answers' way into the
  // job. What the server tells of the batch, with its answers where it is over.
  absl::Status Hear(const BatchServer& server, BatchReport* report);
  // Takes the answers that a file of the server's has; empty: none.
  absl::Status Take(const BatchServer& server, const std::string& file, BatchReport* report);
  absl::Status Sleep(absl::Duration length);

  Connection& connection_;
  const BatchPollOptions options_;
  FoundJob job_;
  BatchStore store_;
  std::deque<JobBatch> round_;    // to be asked after
  std::deque<JobBatch> waiting_;  // that have not ended
  const MonotonicTime until_;
  bool heard_ = false;    // of any
  absl::Status failure_;  // the first
};

}  // namespace lm

#endif  // LM_EXTENSION_BATCH_FILES_BATCH_POLL_H_
