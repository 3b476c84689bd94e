// lm_batch_submit(job, model [, options]): hands the rows of a job to a Batch API
//   -> batch, state, status, lines, note
//
//   INSERT INTO temp.lm_models(name, path, options) VALUES
//     ('gpt', 'https://api.openai.com/v1',
//     '{"model":"gpt-5-mini","dialect":"openai","key_env":"OPENAI_API_KEY"}');
//   SELECT * FROM lm_batch_submit('label', 'gpt');
//   SELECT * FROM lm_batch_poll('label');                      -- tomorrow, from any process
//
// `model` is a name of lm_models, on the network. The rows that wait, and are in no batch yet, are
// written as lm_batch_export() writes them (50,000 lines and 200 MB a batch), uploaded
// (POST /files), and made batches (POST /batches); a row of the result for each of these.
//
// Everything that is known of a batch is in the table lm_job_batches beside lm_jobs, and each step
// is written down before it is begun and when it is done: a process may be killed at any moment,
// and the next call goes on. A file that was uploaded is found again by its name, and a batch by
// its file, in the server's own lists; so a row is in one batch, whatever was killed and however
// many processes call this at a time. (What is not possible: a request that is still on its way to
// the server when its sender is killed, and arrives after the next call has looked. For that moment
// there is an Idempotency-Key, for servers that know it.) A batch that is to be forgotten:
// DELETE FROM lm_job_batches, or UPDATE lm_job_batches SET state = 'ended'.
//
// options
//   lines, bytes   the most of a batch
//   retry     true: rows that failed, too
//   database  which database has the job: see lm_run()
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "engine/base/status_macros.h"
#include "extension/batch_files/batch_submit.h"
#include "extension/binding/table_function.h"
#include "extension/connection/own_options.h"
#include "extension/host/sqlite_value.h"
#include "extension/tables/job_cursor.h"
#include "extension/tables/tables.h"

namespace lm {
namespace {

class BatchSubmitCursor : public JobCursor<BatchSubmit, JobBatch> {
 public:
  enum Column { kBatch, kState, kStatus, kLines, kNote, kNumColumns };

  using JobCursor::JobCursor;

  absl::StatusOr<std::unique_ptr<BatchSubmit>> Begin(const std::string& job,
                                                     const TableArguments& args) override {
    ASSIGN_OR_RETURN(const std::optional<std::string> model, args.Text(1));
    ASSIGN_OR_RETURN(const std::optional<std::string> json, args.Text(2));
    ASSIGN_OR_RETURN(const OwnOptions own,
                     OwnOptions::Take(json, {"lines", "bytes", "retry", "database"}));
    RETURN_IF_ERROR(own.CheckNoOthers());
    BatchSubmitOptions options;
    ShardLimits& limits = options.limits;
    ASSIGN_OR_RETURN(limits.lines, own.Integer("lines", limits.lines, 1, INT32_MAX));
    ASSIGN_OR_RETURN(limits.bytes, own.Integer("bytes", limits.bytes, 1, INT64_MAX));
    ASSIGN_OR_RETURN(options.retry, own.Bool("retry", false));
    ASSIGN_OR_RETURN(options.database, own.Text("database"));
    return BatchSubmit::Begin(connection(), job, model.value_or(""), options);
  }

  absl::Status Value(int column, sqlite3_context* context) override {
    const std::string* const texts[] = {&row().batch, &row().state, &row().status, nullptr,
                                        &row().note};
    if (column == kLines) {
      sqlite3_result_int64(context, row().lines);
    } else if (!texts[column]->empty()) {
      ResultText(context, *texts[column]);
    }
    return absl::OkStatus();
  }
};

constexpr TableFunctionSpec kBatchSubmitSpec = {
    .name = "lm_batch_submit",
    .columns = "batch TEXT, state TEXT, status TEXT, lines INTEGER, note TEXT",
    .num_columns = BatchSubmitCursor::kNumColumns,
    .arguments = {"job", "model", "options"},
    .required = 2,
    .missing = "a job and a model of lm_models are wanted: lm_batch_submit(job, model)",
    .open = &MakeCursor<BatchSubmitCursor>,
};

}  // namespace

int RegisterBatchSubmit(const std::shared_ptr<Connection>& connection) {
  return RegisterTemporaryTableFunction(connection, &kBatchSubmitSpec);
}

}  // namespace lm
