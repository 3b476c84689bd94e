// lm_running: the statements, jobs and loadings of models that are under way, in this process and
// in others of the same user
//   -> id, kind, process, connection, sql, name, total, done, failed, foreseen,
//      tokens_per_second, eta_seconds, seconds, waiting_for, hint, began
//
//   -- One connection has a long UPDATE to do; another one, in a second shell, looks after it.
//   SELECT id, sql, done, failed, tokens_per_second, waiting_for FROM lm_running;
//   DELETE FROM lm_running WHERE id = 7;           -- ends it
//
// A row is there from the first time that a statement has to wait for a model until it is reset:
//   kind         'statement'; 'job', one that runs lm_run(); 'load', a model that is being read
//   process      its number, getpid()
//   connection   the number of the connection in its process
//   sql, name    the statement's text, without the values of its parameters; the job's name, the
//                model's file
//   done, failed the rows that have been answered (of lm_summarize, lm_summarize_agg and lm_agg,
//                the parts; of lm_stream, the tokens; of a job, its rows, whichever run did them);
//                a row that SQLite evaluates twice counts twice
//   total        how many rows there will be, where that is known: of lm_each and jobs. A plain
//                UPDATE or SELECT does not say before its end: NULL
//   foreseen     of the answers, those that look-ahead had asked for before SQLite came to the row
//   tokens_per_second     generated for it, over all of its `seconds`
//   eta_seconds  where the total is known
//   waiting_for  'model'; 'load', a model to be loaded; 'network', a batch of the Batch API, or a
//                job's server that is to come back; 'memory', likewise some that is free; 'lock',
//                another's lock on the job's database; 'others', rows of the job that other runs
//                have claimed; NULL: none of these, it is SQLite's or the host's turn
//   hint         why a statement is answered row by row; the same is told to the host's log
//                (SQLITE_CONFIG_LOG) once a statement, with the code SQLITE_WARNING
//
// The rows are those of connections to the same database, or with the same `salt` (lm_settings), as
// in lm_stats. DELETE ends the work: within 50 ms the statement fails with "cancelled by connection
// N", and a transaction that it is part of goes on; only where the statement is deep in SQLite's
// own work its connection is interrupted, as sqlite3_interrupt() does: with what else it has begun.
// Not while another statement is executed there: one that is between two rows, or that cannot be
// told from others of its connection, ends when it calls something of ours again. (One whose rows
// call nothing of ours any more is interrupted where its host goes on with it within 0.25 s, writes
// nothing meanwhile, and has no transaction open.) What is remembered, and what a job has
// committed, stays. DELETE neither waits for the end nor fails where there is nothing left to end;
// and a statement of the same connection ends when it is stepped next.
//
// Other processes are asked through sockets, which they have in a directory of the user's
// ($XDG_RUNTIME_DIR/sqlite-lm or /tmp/sqlite-lm-<user>, and both are looked into; the variable
// LM_RUNTIME_DIR names another, and where it is empty nothing is shown or asked). A process of
// another user, on another machine, or in a container that has none of these directories in common,
// is not seen; the progress of jobs is in lm_jobs and lm_job_rows, for all to read. `process` is a
// number in its own container. A database in memory is its process's alone.
#include <unistd.h>

#include <optional>
#include <string>

#include "absl/time/time.h"
#include "engine/base/status_macros.h"
#include "extension/binding/snapshot_table.h"
#include "extension/connection/other_processes.h"
#include "extension/tables/tables.h"
#include "extension/tables/timestamp.h"

namespace lm {
namespace {

class RunningTable : public WritableTable {
 public:
  using WritableTable::WritableTable;

  const char* name() const override { return "lm_running"; }
  std::string Schema() const override {
    return "CREATE TABLE lm_running(id INTEGER, kind TEXT, process INTEGER, connection INTEGER, "
           "sql TEXT, name TEXT, total INTEGER, done INTEGER, failed INTEGER, foreseen INTEGER, "
           "tokens_per_second REAL, eta_seconds REAL, seconds REAL, waiting_for TEXT, hint TEXT, "
           "began TEXT)";
  }

  // So that what is said of writing is said below.
  int num_writable() const override { return 16; }

  absl::StatusOr<std::vector<SnapshotRow>> Rows() override {
    std::vector<SnapshotRow> rows;
    const std::string salt = connection().Salt();
    auto add = [&rows](const WorkInfo& info) { rows.push_back({info.id, CellsOf(info)}); };
    for (const WorkInfo& info : RunningWork::All(salt)) add(info);
    ASSIGN_OR_RETURN(const std::vector<WorkInfo> others, WorkOfOtherProcesses(salt));
    for (const WorkInfo& info : others) add(info);
    return rows;
  }

  absl::StatusOr<int64_t> Insert(absl::Span<const Cell>, OnConflict) override { return Refused(); }
  absl::Status Update(int64_t, absl::Span<const Cell>, OnConflict) override { return Refused(); }
  absl::Status Delete(int64_t rowid) override {
    const WorkOwner canceller = connection().work_owner();
    if (rowid >= kIdsOfAProcess) return CancelInOtherProcess(rowid, canceller);
    RunningWork::Cancel(rowid, canceller);
    return absl::OkStatus();
  }

  // What is ended stays so.
  std::shared_ptr<const void> Save() const override { return nullptr; }
  void Restore(const void*) override {}

 private:
  static absl::Status Refused() {
    return absl::InvalidArgumentError(
        "rows are there while something runs; DELETE ends it, and nothing else can be written");
  }

  static Cell TextOrNull(const std::string& text) { return text.empty() ? Cell() : Cell(text); }

  static std::vector<Cell> CellsOf(const WorkInfo& info) {
    const WorkCounts& counts = info.counts;
    const double seconds = absl::ToDoubleSeconds(info.elapsed);
    std::optional<double> eta;
    if (counts.total.has_value()) {
      const int64_t over = counts.done + counts.failed;
      const int64_t here = over - counts.before;
      const int64_t left = *counts.total - over;
      if (left == 0) {
        eta = 0;
      } else if (here > 0) {
        eta = seconds * static_cast<double>(left) / static_cast<double>(here);
      }
    }
    const bool rows = info.kind != WorkKind::kLoad;
    auto count = [rows](int64_t number) { return rows ? Cell(number) : Cell(); };
    return {info.id,
            std::string(WorkKindName(info.kind)),
            info.process != 0 ? info.process : int64_t{getpid()},
            static_cast<int64_t>(info.connection),
            TextOrNull(info.sql),
            TextOrNull(info.name),
            counts.total.has_value() ? Cell(*counts.total) : Cell(),
            count(counts.done),
            count(counts.failed),
            count(counts.foreseen),
            rows && seconds > 0 ? Cell(static_cast<double>(counts.tokens) / seconds) : Cell(),
            eta.has_value() ? Cell(*eta) : Cell(),
            seconds,
            TextOrNull(info.waiting_for),
            TextOrNull(info.hint),
            Timestamp(info.began)};
  }
};

}  // namespace

int RegisterRunning(const std::shared_ptr<Connection>& connection) {
  return RegisterWritableTable(connection, "lm_running", &MakeTable<RunningTable>);
}

}  // namespace lm
