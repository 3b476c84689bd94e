// lm_batch_export(job [, options]): the rows of a job as files of requests to a server
//   -> shard, lines, bytes, text
//
//   SELECT text FROM lm_batch_export('label', '{"model":"Qwen/Qwen3-32B","dialect":"vllm"}');
//   SELECT * FROM lm_batch_export('label', '{"model":"gpt-5-mini","path":"/data/label"}');
//
// The requests are those that lm_run() would send to a server of OpenAI's API, constraints
// included, in the form of its Batch API: one JSON object a line, with a custom_id of the job's
// name, the row's number in lm_job_rows and a digest of what is asked. `vllm run-batch`, SGLang,
// hosted batch APIs and anything that reads JSONL can answer them, anywhere and in any order;
// lm_batch_import() takes what they say. sql/batch_files.md shows it.
//
// Without `path` each row of the result is a line: its shard, 1, its bytes, and the line. With it,
// each row is a file, path-00001.jsonl and so on, which appears when it is whole: its shard, lines,
// bytes and path. A shard has 50,000 lines and 200 MB at most, as the Batch API takes them.
//
// Rows that wait are exported; they go on waiting until they are answered, so lm_run() could do
// some of them meanwhile. The job's query is asked if it has not been, as by lm_run(). What needs
// no model is done at once: a NULL prompt has the answer NULL, a prompt that is no text fails.
//
// options
//   model     what the server calls its model; unless given, as the model on the network that the
//             job names has it in lm_models
//   dialect   how constraints and other options are written: openai, vllm, sglang, llama-server,
//             ollama; unless given, as that model has it in lm_models, or else openai
//   path      of files to write; one that exists is not written over
//   lines, bytes   the most of a shard
//   retry     true: failed rows, too
//   database  which database has the job: see lm_run()
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "engine/base/status_macros.h"
#include "extension/batch_files/batch_export.h"
#include "extension/binding/table_function.h"
#include "extension/connection/own_options.h"
#include "extension/host/sqlite_value.h"
#include "extension/tables/job_cursor.h"
#include "extension/tables/tables.h"

namespace lm {
namespace {

absl::StatusOr<BatchExportOptions> ReadExportOptions(const std::optional<std::string>& json) {
  ASSIGN_OR_RETURN(
      const OwnOptions own,
      OwnOptions::Take(json, {"model", "dialect", "path", "lines", "bytes", "retry", "database"}));
  RETURN_IF_ERROR(own.CheckNoOthers());
  BatchExportOptions options;
  ASSIGN_OR_RETURN(options.target.model, own.Text("model"));
  ASSIGN_OR_RETURN(const std::optional<std::string> dialect, own.Text("dialect"));
  if (dialect.has_value()) {
    ASSIGN_OR_RETURN(options.target.dialect, ParseDialect(*dialect));
  }
  ASSIGN_OR_RETURN(options.path, own.Text("path"));
  ShardLimits& limits = options.limits;
  ASSIGN_OR_RETURN(limits.lines, own.Integer("lines", limits.lines, 1, INT32_MAX));
  ASSIGN_OR_RETURN(limits.bytes, own.Integer("bytes", limits.bytes, 1, INT64_MAX));
  ASSIGN_OR_RETURN(options.retry, own.Bool("retry", false));
  ASSIGN_OR_RETURN(options.database, own.Text("database"));
  return options;
}

class BatchExportCursor : public JobCursor<BatchExport, ExportedLines> {
 public:
  enum Column { kShard, kLines, kBytes, kText, kNumColumns };

  using JobCursor::JobCursor;

  absl::StatusOr<std::unique_ptr<BatchExport>> Begin(const std::string& job,
                                                     const TableArguments& args) override {
    ASSIGN_OR_RETURN(const std::optional<std::string> json, args.Text(1));
    ASSIGN_OR_RETURN(const BatchExportOptions options, ReadExportOptions(json));
    return BatchExport::Begin(connection(), job, options);
  }

  absl::Status Value(int column, sqlite3_context* context) override {
    switch (column) {
      case kShard:
        sqlite3_result_int64(context, row().shard);
        break;
      case kLines:
        sqlite3_result_int64(context, row().lines);
        break;
      case kBytes:
        sqlite3_result_int64(context, row().bytes);
        break;
      case kText:
        ResultText(context, row().text);
        break;
    }
    return absl::OkStatus();
  }
};

constexpr TableFunctionSpec kBatchExportSpec = {
    .name = "lm_batch_export",
    .columns = "shard INTEGER, lines INTEGER, bytes INTEGER, text TEXT",
    .num_columns = BatchExportCursor::kNumColumns,
    .arguments = {"job", "options"},
    .missing = "the name of a job is missing: lm_batch_export(job)",
    .open = &MakeCursor<BatchExportCursor>,
};

}  // namespace

int RegisterBatchExport(const std::shared_ptr<Connection>& connection) {
  return RegisterTemporaryTableFunction(connection, &kBatchExportSpec);
}

}  // namespace lm
