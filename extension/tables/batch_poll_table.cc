// lm_batch_poll(job [, options]): asks after the batches of lm_batch_submit(), takes their answers
//   -> batch, state, status, lines, completed, done, failed, again, unbegun, refused, note
//
//   SELECT * FROM lm_batch_poll('label');
//   SELECT * FROM lm_batch_poll('label', '{"wait_seconds":86400}');
//
// A row for each batch that has not ended: what the server says of it, and, where it is over
// (completed, expired, cancelled, failed), what lm_batch_import() makes of its output and error
// files, which are downloaded to a file without a name and nowhere kept. It may be killed at any
// moment, and called by several processes at a time: answers are taken once. Rows that got none
// wait, for lm_batch_submit() or lm_run().
//
// The model is the one that the batch was submitted with, by its name in this connection's
// lm_models; its key is sent to no address that does not stand there.
//
// options
//   wait_seconds  how long batches are waited for (0: they are asked once); a row each time that
//                 one is asked
//   pause_ms      between two rounds of questions; 10000
//   database      which database has the job: see lm_run()
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "engine/base/status_macros.h"
#include "extension/batch_files/batch_poll.h"
#include "extension/binding/table_function.h"
#include "extension/connection/own_options.h"
#include "extension/host/sqlite_value.h"
#include "extension/tables/job_cursor.h"
#include "extension/tables/tables.h"

namespace lm {
namespace {

class BatchPollCursor : public JobCursor<BatchPoll, BatchReport> {
 public:
  enum Column {
    kBatch,
    kState,
    kStatus,
    kLines,
    kCompleted,
    kDone,
    kFailed,
    kAgain,
    kUnbegun,
    kRefused,
    kNote,
    kNumColumns
  };

  using JobCursor::JobCursor;

  absl::StatusOr<std::unique_ptr<BatchPoll>> Begin(const std::string& job,
                                                   const TableArguments& args) override {
    ASSIGN_OR_RETURN(const std::optional<std::string> json, args.Text(1));
    ASSIGN_OR_RETURN(const OwnOptions own,
                     OwnOptions::Take(json, {"wait_seconds", "pause_ms", "database"}));
    RETURN_IF_ERROR(own.CheckNoOthers());
    BatchPollOptions options;
    ASSIGN_OR_RETURN(const int64_t seconds, own.Integer("wait_seconds", 0, 0, INT32_MAX));
    options.most = absl::Seconds(seconds);
    ASSIGN_OR_RETURN(const int64_t pause, own.Integer("pause_ms", 10'000, 1, INT32_MAX));
    options.pause = absl::Milliseconds(pause);
    ASSIGN_OR_RETURN(options.database, own.Text("database"));
    return BatchPoll::Begin(connection(), job, options);
  }

  absl::Status Value(int column, sqlite3_context* context) override {
    const JobBatch& batch = row().batch;
    const ImportCounts& counts = row().imported;
    const std::string& note = batch.note.empty() ? row().refusal : batch.note;
    switch (column) {
      case kBatch:
      case kState:
      case kStatus:
        ResultText(context, column == kBatch   ? batch.batch
                            : column == kState ? batch.state
                                               : batch.status);
        break;
      case kNote:
        if (!note.empty()) ResultText(context, note);
        break;
      default: {
        const int64_t numbers[] = {batch.lines,   row().remote.completed, counts.done,
                                   counts.failed, counts.again,           counts.unbegun,
                                   counts.refused};
        sqlite3_result_int64(context, numbers[column - kLines]);
      }
    }
    return absl::OkStatus();
  }
};

constexpr TableFunctionSpec kBatchPollSpec = {
    .name = "lm_batch_poll",
    .columns =
        "batch TEXT, state TEXT, status TEXT, lines INTEGER, completed INTEGER, "
        "done INTEGER, failed INTEGER, again INTEGER, unbegun INTEGER, refused INTEGER, "
        "note TEXT",
    .num_columns = BatchPollCursor::kNumColumns,
    .arguments = {"job", "options"},
    .missing = "the name of a job is missing: lm_batch_poll(job)",
    .open = &MakeCursor<BatchPollCursor>,
};

}  // namespace

int RegisterBatchPoll(const std::shared_ptr<Connection>& connection) {
  return RegisterTemporaryTableFunction(connection, &kBatchPollSpec);
}

}  // namespace lm
