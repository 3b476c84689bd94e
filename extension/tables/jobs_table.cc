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
// Both are ordinary tables, which any program can read. The first INSERT into lm_jobs makes them,
// in the main database or, with INSERT INTO a.lm_jobs, in the attached one named; until then the
// names stand for tables without rows. run_table.cc explains the columns of lm_jobs; lm_job_rows
// has for each row of the query
//   number                  its place
//   job, id, prompt, system what the query gave
//   state                   waiting, running, done, failed
//   value, error, finish, tokens_in, tokens_cached, tokens_out     as lm_each()
//   attempts                how often a run has claimed it
//   worker, lease           who has claimed it, and until when (milliseconds since 1970)
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "extension/connection/snapshot_table.h"
#include "extension/host/sql_tokens.h"
#include "extension/host/statement.h"
#include "extension/jobs/job_store.h"
#include "extension/tables/tables.h"

namespace lm {
namespace {

// The database that an INSERT INTO lm_jobs, which runs on `db`, names; "main" where it names none.
// One virtual table stands for lm_jobs in all databases, and SQLite does not tell it which was
// meant, but the statement's text does.
absl::StatusOr<std::string> SchemaOfInsert(sqlite3* db) {
  std::optional<std::string> schema;
  for (sqlite3_stmt* statement : BusyStatements(db)) {
    const std::vector<SqlToken> tokens = SqlTokens(sqlite3_sql(statement));
    for (size_t i = 1; i < tokens.size(); ++i) {
      if (!tokens[i].Names("lm_jobs")) continue;
      const bool named = i >= 3 && tokens[i - 1].Is(".");
      if (!tokens[named ? i - 3 : i - 1].Is("INTO")) continue;
      const std::string found = named ? tokens[i - 2].Name() : "main";
      if (schema.has_value() && !absl::EqualsIgnoreCase(*schema, found)) {
        return absl::FailedPreconditionError(
            "several statements insert into lm_jobs of several databases at a time");
      }
      schema = found;
    }
  }
  if (schema.has_value() && absl::EqualsIgnoreCase(*schema, "temp")) {
    return absl::FailedPreconditionError(
        "jobs are kept in a database that lasts: main, or an attached one");
  }
  return schema.value_or("main");
}

// Has no rows ever: its first INSERT goes to the table that takes its place.
class JobsTable : public WritableTable {
 public:
  using WritableTable::WritableTable;

  const char* name() const override { return "lm_jobs"; }
  std::string Schema() const override {
    return "CREATE TABLE lm_jobs(name TEXT, query TEXT, target TEXT, system TEXT, options TEXT, "
           "model TEXT, total INTEGER)";
  }
  int num_writable() const override { return 7; }
  absl::StatusOr<std::vector<SnapshotRow>> Rows() override { return std::vector<SnapshotRow>(); }

  absl::StatusOr<int64_t> Insert(absl::Span<const Cell> cells, OnConflict on_conflict) override {
    sqlite3* db = connection().db();
    ASSIGN_OR_RETURN(const std::string schema, SchemaOfInsert(db));
    RETURN_IF_ERROR(CreateJobTables(db, schema));
    const char* verb = on_conflict == OnConflict::kIgnore    ? "INSERT OR IGNORE"
                       : on_conflict == OnConflict::kReplace ? "INSERT OR REPLACE"
                                                             : "INSERT";
    ASSIGN_OR_RETURN(Statement insert,
                     Statement::Prepare(db, absl::StrCat(verb, " INTO ", QuotedName(schema),
                                                         ".lm_jobs VALUES (?,?,?,?,?,?,?)")));
    for (size_t i = 0; i < cells.size(); ++i) {
      insert.BindCell(static_cast<int>(i) + 1, cells[i]);
    }
    absl::Status inserted = insert.Run();
    const bool constraint = (sqlite3_errcode(db) & 0xff) == SQLITE_CONSTRAINT;
    if (!inserted.ok() && constraint) return absl::AlreadyExistsError(inserted.message());
    RETURN_IF_ERROR(inserted);
    const int64_t rowid = sqlite3_changes(db) > 0 ? sqlite3_last_insert_rowid(db) : 0;
    CreateInTemp(db, {"lm_run"});
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
  std::string Schema() const override {
    return "CREATE TABLE lm_job_rows(number INTEGER, job TEXT, id, prompt TEXT, system TEXT, "
           "state TEXT, value TEXT, error TEXT, finish TEXT, tokens_in INTEGER, "
           "tokens_cached INTEGER, tokens_out INTEGER, attempts INTEGER, worker TEXT, "
           "lease INTEGER)";
  }
  absl::StatusOr<std::vector<SnapshotRow>> Rows() override { return std::vector<SnapshotRow>(); }
};

}  // namespace

int RegisterJobs(const std::shared_ptr<Connection>& connection) {
  int code = RegisterWritableTable(connection, "lm_jobs", &MakeTable<JobsTable>);
  if (code != SQLITE_OK) return code;
  return RegisterReadOnlyTable(connection, "lm_job_rows", &MakeTable<JobRowsTable>);
}

}  // namespace lm
