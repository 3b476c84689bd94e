// lm_jobs, lm_job_rows: jobs and their rows, as lm_run() works on them
//
//   INSERT INTO lm_jobs(name, query, target) VALUES ('shorten',
//     'SELECT id, body, ''Say it in one sentence.'' FROM notes',
//     'UPDATE notes SET short = :value WHERE id = :id');
//   SELECT * FROM lm_run('shorten');
//   SELECT state, count(*), sum(tokens_out) FROM lm_job_rows WHERE job = 'shorten' GROUP BY state;
//   UPDATE lm_job_rows SET state = 'waiting' WHERE job = 'shorten' AND value = '';    -- once more
//   DELETE FROM lm_jobs WHERE name = 'shorten';                       -- the job, and its rows
//
// Both are ordinary tables of the main database, which any program can read. The first INSERT into
// lm_jobs makes them; until then the names stand for tables without rows. run_table.cc explains
// the columns of lm_jobs; lm_job_rows has for each row of the query
//   number                  its place
//   job, id, prompt, system what the query gave
//   state                   waiting, running, done, failed
//   value, error, finish, tokens_in, tokens_cached, tokens_out     as lm_each()
//   attempts                how often a run has claimed it
//   worker, lease           who has claimed it, and until when (milliseconds since 1970)
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "extension/job_store.h"
#include "extension/registrations.h"
#include "extension/snapshot_table.h"
#include "extension/statement.h"

namespace lm {
namespace {

// Has no rows ever: its first INSERT goes to the table that takes its place.
class JobsTable : public WritableTable {
 public:
  using WritableTable::WritableTable;

  const char* name() const override { return "lm_jobs"; }
  const char* schema() const override {
    return "CREATE TABLE lm_jobs(name TEXT, query TEXT, target TEXT, system TEXT, options TEXT, "
           "model TEXT, total INTEGER)";
  }
  absl::StatusOr<std::vector<SnapshotRow>> Rows() override { return std::vector<SnapshotRow>(); }

  absl::StatusOr<int64_t> Insert(absl::Span<const Cell> cells, OnConflict on_conflict) override {
    sqlite3* db = connection().db();
    RETURN_IF_ERROR(CreateJobTables(db));
    const char* verb = on_conflict == OnConflict::kIgnore    ? "INSERT OR IGNORE"
                       : on_conflict == OnConflict::kReplace ? "INSERT OR REPLACE"
                                                             : "INSERT";
    ASSIGN_OR_RETURN(
        Statement insert,
        Statement::Prepare(db, absl::StrCat(verb, " INTO main.lm_jobs VALUES (?,?,?,?,?,?,?)")));
    for (size_t i = 0; i < cells.size(); ++i) {
      insert.BindCell(static_cast<int>(i) + 1, cells[i]);
    }
    absl::Status inserted = insert.Run();
    const bool constraint = (sqlite3_errcode(db) & 0xff) == SQLITE_CONSTRAINT;
    if (!inserted.ok() && constraint) return absl::AlreadyExistsError(inserted.message());
    RETURN_IF_ERROR(inserted);
    const int64_t rowid = sqlite3_changes(db) > 0 ? sqlite3_last_insert_rowid(db) : 0;
    CreateInTemp(db, "lm_run");
    return rowid;
  }
  absl::Status Update(int64_t, absl::Span<const Cell>, OnConflict) override {
    return absl::InternalError("there is no row to update");
  }
  absl::Status Delete(int64_t) override { return absl::InternalError("there is no row to delete"); }

  // What it writes is SQLite's own.
  std::shared_ptr<const void> Save() const override { return nullptr; }
  void Restore(const void*) override {}
};

class JobRowsTable : public SnapshotTable {
 public:
  using SnapshotTable::SnapshotTable;

  const char* name() const override { return "lm_job_rows"; }
  const char* schema() const override {
    return "CREATE TABLE lm_job_rows(number INTEGER, job TEXT, id, prompt TEXT, system TEXT, "
           "state TEXT, value TEXT, error TEXT, finish TEXT, tokens_in INTEGER, "
           "tokens_cached INTEGER, tokens_out INTEGER, attempts INTEGER, worker TEXT, "
           "lease INTEGER)";
  }
  absl::StatusOr<std::vector<SnapshotRow>> Rows() override { return std::vector<SnapshotRow>(); }
};

}  // namespace

int RegisterJobs(const std::shared_ptr<Connection>& connection) {
  int code = RegisterStandInTable(connection, "lm_jobs", &MakeTable<JobsTable>);
  if (code != SQLITE_OK) return code;
  return RegisterReadOnlyTable(connection, "lm_job_rows", &MakeTable<JobRowsTable>);
}

}  // namespace lm
