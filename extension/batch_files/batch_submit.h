// BatchSubmit: hands a job's rows to a Batch API, each once, whatever becomes of the process.
//
//   ASSIGN_OR_RETURN(std::unique_ptr<BatchSubmit> submit,
//                    BatchSubmit::Begin(connection, "label", "gpt", {}));
//   for (;;) {
//     ASSIGN_OR_RETURN(std::optional<JobBatch> batch, submit->Advance());
//     if (!batch.has_value()) break;
//   }
//
// batch_submit_table.cc says what is guaranteed of it.
#ifndef LM_EXTENSION_BATCH_FILES_BATCH_SUBMIT_H_
#define LM_EXTENSION_BATCH_FILES_BATCH_SUBMIT_H_

#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/base/scratch_file.h"
#include "extension/batch_files/batch_export.h"
#include "extension/batch_files/batch_questions.h"
#include "extension/batch_files/batch_rows.h"
#include "extension/batch_files/batch_server.h"
#include "extension/batch_files/batch_store.h"
#include "extension/jobs/found_job.h"

namespace lm {

struct BatchSubmitOptions {
  ShardLimits limits = {};
  bool retry = false;  // failed rows, too
  std::optional<std::string> database = {};
};

// Not thread-safe; used while one statement runs.
class BatchSubmit {
 public:
  // `model` is a name of lm_models. Errors: those of OpenJob and BatchQuestions; InvalidArgument
  // where the model is not on the network; what the network says.
  static absl::StatusOr<std::unique_ptr<BatchSubmit>> Begin(Connection& connection,
                                                            absl::string_view job,
                                                            const std::string& model,
                                                            const BatchSubmitOptions& options);
  // Hands over one batch more, those first that were left half-way; nullopt where every row that
  // waits is in one.
  absl::StatusOr<std::optional<JobBatch>> Advance();

 private:
  BatchSubmit(sqlite3* user, const BatchSubmitOptions& options, FoundJob job, BatchServer server,
              BatchQuestions questions);

  // One that was left half-way, and is this process's now.
  absl::StatusOr<std::optional<JobBatch>> NextOld();
  // A new one, whose lines are in file_.
  absl::StatusOr<std::optional<JobBatch>> NextNew();
  // Writes the lines of the batch's range to file_, and notes their number and where the range
  // ends.
  absl::Status Write(JobBatch* batch);
  // Of a batch that was left half-way: finds the file that it has at the server, or writes it; the
  // batch ends where it has no use any more, and its rows are free for another.
  absl::Status FindFile(JobBatch* batch);
  // What is to be done with it yet, step by step.
  absl::Status Upload(JobBatch* batch, bool is_old);
  absl::Status Create(JobBatch* batch, bool is_old);

  sqlite3* const user_;
  const BatchSubmitOptions options_;
  FoundJob job_;
  const BatchServer server_;
  const BatchQuestions questions_;
  BatchRows rows_;
  BatchStore store_;
  std::optional<std::deque<JobBatch>> old_;  // those that were not looked at yet
  std::shared_ptr<const ScratchFile> file_;
};

}  // namespace lm

#endif  // LM_EXTENSION_BATCH_FILES_BATCH_SUBMIT_H_
