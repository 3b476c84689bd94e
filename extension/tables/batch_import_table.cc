// lm_batch_import(job, path [, options]): takes the answers to what lm_batch_export() wrote
//   -> lines, done, failed, again, unbegun, refused, refusal
//
//   SELECT * FROM lm_batch_import('label', '/data/label-00001.out.jsonl');
//
// The file has a JSON object a line, as the Batch API and `vllm run-batch` write them: a custom_id,
// and a response or an error. Lines may come in any order, be missing, and be there twice; a file
// may be taken twice, or half of it before the process was killed: a row has its answer once.
//
// Nothing that a line says is believed: it must be the answer to what the row asks now (the digest
// in its custom_id says to what), and is held to the job's constraint, as an answer from the
// network is. An answer, its row's state and what the job's target does with it are committed
// together, some hundred rows at a time. A row that failed there, or whose answer does not fit, is
// 'failed' in lm_job_rows, for lm_batch_export(job, '{"retry":true}') or lm_run(job,
// '{"retry":true}'); an answer that comes later is taken all the same. Where the job's model is one
// on the network, the memo knows the answers, too.
//
// A row of the result for each line that no row can take, with the reason in `refusal` (the row's
// prompt or options have changed since it was exported, the line is another job's, ...), and one at
// the end, with the sums:
//   lines     read so far
//   done      rows that got their answer
//   failed    rows that failed
//   again     lines of rows that had their answer, or their failure, already
//   unbegun   requests that the server did not begin in time (batch_expired): their rows wait
//   refused   lines that no row can take
//
// options
//   database  which database has the job: see lm_run()
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "engine/base/status_macros.h"
#include "extension/batch_files/batch_import.h"
#include "extension/binding/snapshot_table.h"
#include "extension/binding/table_function.h"
#include "extension/connection/own_options.h"
#include "extension/host/ask_authorizer.h"
#include "extension/host/sqlite_value.h"
#include "extension/tables/job_cursor.h"
#include "extension/tables/tables.h"

namespace lm {
namespace {

class BatchImportCursor : public TableCursor {
 public:
  enum Column { kLines, kDone, kFailed, kAgain, kUnbegun, kRefused, kRefusal, kNumColumns };

  using TableCursor::TableCursor;

  absl::Status Filter(const TableArguments& args) override {
    import_.reset();
    refusals_.clear();
    rowid_ = 0;
    over_ = false;
    ASSIGN_OR_RETURN(const std::string job, JobArgument(connection(), args));
    ASSIGN_OR_RETURN(const std::optional<std::string> path, args.Text(1));
    ASSIGN_OR_RETURN(const std::optional<std::string> json, args.Text(2));
    if (!path.has_value()) return absl::InvalidArgumentError("path is NULL");
    ASSIGN_OR_RETURN(const OwnOptions own, OwnOptions::Take(json, {"database"}));
    RETURN_IF_ERROR(own.CheckNoOthers());
    ASSIGN_OR_RETURN(const std::optional<std::string> database, own.Text("database"));
    RETURN_IF_ERROR(CheckMayAttach(connection().db(), *path));
    ASSIGN_OR_RETURN(const bool late, CreateInTemp(connection()));
    absl::StatusOr<std::unique_ptr<BatchImport>> begun =
        BatchImport::Begin(connection(), job, database);
    RETURN_IF_ERROR(OnceMore(connection().db(), late, begun.status()));
    import_ = *std::move(begun);
    RETURN_IF_ERROR(import_->Open(*path));
    return Advance();
  }
  bool AtEnd() const override { return import_ == nullptr; }
  absl::Status Next() override {
    ++rowid_;
    if (refusals_.empty()) {  // those were the sums
      import_.reset();
      return absl::OkStatus();
    }
    refusals_.pop_front();
    return Advance();
  }
  int64_t rowid() const override { return rowid_; }

  absl::Status Value(int column, sqlite3_context* context) override {
    const ImportCounts& counts = import_->counts();
    const int64_t numbers[] = {counts.lines, counts.done,    counts.failed,
                               counts.again, counts.unbegun, counts.refused};
    if (column < kRefusal) {
      sqlite3_result_int64(context, numbers[column]);
    } else if (!refusals_.empty()) {
      ResultText(context, refusals_.front());
    }
    return absl::OkStatus();
  }

 private:
  // On a refusal, or behind the last of them on the sums.
  absl::Status Advance() {
    while (refusals_.empty() && !over_) {
      ASSIGN_OR_RETURN(const bool more, import_->Advance());
      over_ = !more;
      for (std::string& refusal : import_->TakeRefusals()) refusals_.push_back(std::move(refusal));
    }
    return absl::OkStatus();
  }

  std::unique_ptr<BatchImport> import_;  // null: at the end
  std::deque<std::string> refusals_;     // the first is the row's, if there is one
  bool over_ = false;                    // the file is
  int64_t rowid_ = 0;
};

constexpr TableFunctionSpec kBatchImportSpec = {
    .name = "lm_batch_import",
    .columns =
        "lines INTEGER, done INTEGER, failed INTEGER, again INTEGER, unbegun INTEGER, "
        "refused INTEGER, refusal TEXT",
    .num_columns = BatchImportCursor::kNumColumns,
    .arguments = {"job", "path", "options"},
    .required = 2,
    .missing = "a job and a path are wanted: lm_batch_import(job, path)",
    .open = &MakeCursor<BatchImportCursor>,
};

}  // namespace

int RegisterBatchImport(const std::shared_ptr<Connection>& connection) {
  return RegisterTemporaryTableFunction(connection, &kBatchImportSpec);
}

}  // namespace lm
