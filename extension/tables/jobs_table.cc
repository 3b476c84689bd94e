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
//   worker, lease           which run has claimed it, and until when (milliseconds since 1970)
//   answered                when it was done, or failed (UTC)
//   prompt_version, model   digests of what the answer is to, and of the model that gave it
//   vanished                since when the query does not give the row any more; such rows are
//                           kept, and no longer worked on nor counted
// and lm_jobs the times `created`, `began` (the query was asked) and `ended` (no row was left), and
// `status`: how the last run ended: 'done', where no row was left (of a query without rows, too),
// or why it stopped, by a budget or max_errors; `ended` is NULL then.
//
// What is wrong with a job's options or system prompt is said when it is run, before anything is
// asked, and of the first jobs, whose INSERT makes the tables, when they are written: later ones go
// past this extension. (A TEMP trigger would look at them; but where another connection drops
// lm_jobs, SQLite then refuses each ALTER TABLE of this one, and the trigger cannot be dropped.)
// lm_check_job(system, options) says it at any time. A job's query is asked once: changing it later
// is an error, unless the same UPDATE sets total to NULL, which begins the job anew, or has
// lm_run(job, '{"refresh":true}') go on with the answers that still hold.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "extension/binding/scalar_function.h"
#include "extension/binding/snapshot_table.h"
#include "extension/connection/call_options.h"
#include "extension/connection/own_options.h"
#include "extension/host/sql_tokens.h"
#include "extension/host/statement.h"
#include "extension/jobs/job_options.h"
#include "extension/jobs/job_schema.h"
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
      if (!absl::EqualsIgnoreCase(tokens[i].NameOrString(), "lm_jobs")) continue;
      const bool named = i >= 3 && tokens[i - 1].Is(".");
      if (!tokens[named ? i - 3 : i - 1].Is("INTO")) continue;
      const std::string found = named ? tokens[i - 2].NameOrString() : "main";
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

absl::Status CheckJob(const Cell& system, const Cell& options) {
  if (const auto* text = std::get_if<std::string>(&system)) {
    RETURN_IF_ERROR(CheckNotOptions(*text, "system"));
  }
  if (std::holds_alternative<std::monostate>(options)) return absl::OkStatus();
  const auto* json = std::get_if<std::string>(&options);
  if (json == nullptr) return absl::InvalidArgumentError("options must be a JSON object or NULL");
  ASSIGN_OR_RETURN(const JobOptions read, ReadJobOptions(*json));
  return CheckCallOptions(*read.of_calls);
}

// lm_check_job(system, options): 1, or an error that says what is wrong with them.
absl::Status CheckJobFunction(Call& call) {
  auto cell_of = [&call](int i, absl::string_view what) -> absl::StatusOr<Cell> {
    ASSIGN_OR_RETURN(std::optional<std::string> text, call.Text(i, what));
    return text.has_value() ? Cell(*std::move(text)) : Cell();
  };
  ASSIGN_OR_RETURN(const Cell system, cell_of(0, "system"));
  ASSIGN_OR_RETURN(const Cell options, cell_of(1, "options"));
  RETURN_IF_ERROR(CheckJob(system, options));
  sqlite3_result_int(call.context(), 1);
  return absl::OkStatus();
}

// Has no rows ever: its first INSERT goes to the table that takes its place.
class JobsTable : public WritableTable {
 public:
  enum Column { kSystem = 3, kOptions = 4, kTotal = 6, kNumGiven = 7 };

  using WritableTable::WritableTable;

  const char* name() const override { return "lm_jobs"; }
  std::string Schema() const override {
    return "CREATE TABLE lm_jobs(name TEXT, query TEXT, target TEXT, system TEXT, options TEXT, "
           "model TEXT, total INTEGER, created TEXT, began TEXT, ended TEXT, status TEXT)";
  }
  int num_writable() const override { return kNumGiven; }
  absl::StatusOr<std::vector<SnapshotRow>> Rows() override { return std::vector<SnapshotRow>(); }

  absl::StatusOr<int64_t> Insert(absl::Span<const Cell> cells, OnConflict on_conflict) override {
    sqlite3* db = connection().db();
    ASSIGN_OR_RETURN(const std::string schema, SchemaOfInsert(db));
    RETURN_IF_ERROR(CheckJob(cells[kSystem], cells[kOptions]));
    if (!std::holds_alternative<std::monostate>(cells[kTotal])) {
      return absl::InvalidArgumentError(
          "total is what lm_run() writes down: leave it out of a new job");
    }
    RETURN_IF_ERROR(CreateJobTables(db, schema));
    const char* verb = on_conflict == OnConflict::kIgnore    ? "INSERT OR IGNORE"
                       : on_conflict == OnConflict::kReplace ? "INSERT OR REPLACE"
                                                             : "INSERT";
    ASSIGN_OR_RETURN(
        Statement insert,
        Statement::Prepare(db, absl::StrCat(verb, " INTO ", QuotedName(schema),
                                            ".lm_jobs(name, query, target, system, options, "
                                            "model, total) VALUES (?,?,?,?,?,?,?)")));
    for (size_t i = 0; i < kNumGiven; ++i) {
      insert.BindCell(static_cast<int>(i) + 1, cells[i]);
    }
    absl::Status inserted = insert.Run();
    const bool constraint = (sqlite3_errcode(db) & 0xff) == SQLITE_CONSTRAINT;
    if (!inserted.ok() && constraint) return absl::AlreadyExistsError(inserted.message());
    RETURN_IF_ERROR(inserted);
    const int64_t rowid = sqlite3_changes(db) > 0 ? sqlite3_last_insert_rowid(db) : 0;
    RETURN_IF_ERROR(CreateInTemp(connection()).status());
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

// Writable, though nothing can be written: a statement that SQLite compiles looks, when it is run,
// whether there is a table by now that another connection has made.
class JobRowsTable : public WritableTable {
 public:
  using WritableTable::WritableTable;

  const char* name() const override { return "lm_job_rows"; }
  std::string Schema() const override {
    return "CREATE TABLE lm_job_rows(number INTEGER, job TEXT, id, prompt TEXT, system TEXT, "
           "state TEXT, value TEXT, error TEXT, finish TEXT, tokens_in INTEGER, "
           "tokens_cached INTEGER, tokens_out INTEGER, attempts INTEGER, worker TEXT, "
           "lease INTEGER, answered TEXT, prompt_version TEXT, model TEXT, vanished TEXT)";
  }
  absl::StatusOr<std::vector<SnapshotRow>> Rows() override { return std::vector<SnapshotRow>(); }

  int num_writable() const override { return 19; }  // all

  absl::StatusOr<int64_t> Insert(absl::Span<const Cell>, OnConflict) override {
    return absl::FailedPreconditionError(
        "a job's rows are what lm_run() makes of its query: INSERT INTO lm_jobs, and run it");
  }
  absl::Status Update(int64_t, absl::Span<const Cell>, OnConflict) override {
    return absl::InternalError("there is no row to update");
  }
  absl::Status Delete(int64_t) override { return absl::InternalError("there is no row to delete"); }

  std::shared_ptr<const void> Save() const override { return nullptr; }
  void Restore(const void*) override {}
};

}  // namespace

int RegisterJobs(const std::shared_ptr<Connection>& connection) {
  int code = RegisterScalar<&CheckJobFunction>(
      connection, {"lm_check_job", 2, 2, kDirectOnly, /*said_by=*/"lm_jobs"});
  if (code != SQLITE_OK) return code;
  code = RegisterWritableTable(connection, "lm_jobs", &MakeTable<JobsTable>);
  if (code != SQLITE_OK) return code;
  return RegisterWritableTable(connection, "lm_job_rows", &MakeTable<JobRowsTable>);
}

}  // namespace lm
