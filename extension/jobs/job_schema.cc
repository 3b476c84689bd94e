#include "extension/jobs/job_schema.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "engine/base/status_macros.h"
#include "extension/host/sql_tokens.h"
#include "extension/host/statement.h"

namespace lm {
namespace {

constexpr char kJobSchema[] = R"(
CREATE TABLE IF NOT EXISTS {db}.lm_jobs(
  name TEXT PRIMARY KEY NOT NULL,
  query TEXT NOT NULL,  -- SELECT id, prompt [, system]: asked once, when the job first runs
  target TEXT,          -- INSERT, UPDATE or DELETE: :id, :prompt, :value (the answer), :error
  system TEXT,          -- the system prompt of rows without one of their own
  options TEXT,         -- as for generate()
  model TEXT,           -- set by lm_run(): the model that the job was begun with
  total INTEGER,        -- set by lm_run(): the number of rows
  created TEXT DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),  -- UTC, as all times here
  began TEXT,           -- set by lm_run(): when the query was asked
  ended TEXT,           -- set by lm_run(): when no row was left to do
  status TEXT           -- set by lm_run(): how its last run ended; NULL: it has not
);
CREATE TABLE IF NOT EXISTS {db}.lm_job_rows(
  number INTEGER PRIMARY KEY,
  job TEXT NOT NULL,
  id NOT NULL,
  prompt TEXT,
  system TEXT,
  state TEXT NOT NULL DEFAULT 'waiting' CHECK(state IN ('waiting', 'running', 'done', 'failed')),
  value TEXT,
  error TEXT,
  finish TEXT,
  tokens_in INTEGER,
  tokens_cached INTEGER,
  tokens_out INTEGER,
  attempts INTEGER NOT NULL DEFAULT 0,
  worker TEXT,    -- who has claimed a running row
  lease INTEGER,  -- and until when, in milliseconds since 1970
  answered TEXT,  -- when it was done or failed
  prompt_version TEXT,  -- of the answer: a digest of prompt, system prompt and options
  model TEXT,           -- likewise: the digest of the model, with its adapters and template
  vanished TEXT,        -- since when the query does not give the row any more
  UNIQUE(job, id)
);
CREATE INDEX IF NOT EXISTS {db}.lm_job_rows_by_state ON lm_job_rows(job, state);
CREATE TRIGGER IF NOT EXISTS {db}.lm_jobs_delete AFTER DELETE ON lm_jobs
  BEGIN DELETE FROM lm_job_rows WHERE job = old.name; END;
)";

// A query that would be asked no more.
constexpr char kQueryTrigger[] = R"(
CREATE TRIGGER IF NOT EXISTS {db}.lm_jobs_query BEFORE UPDATE OF query ON lm_jobs
  WHEN new.query IS NOT old.query AND old.total IS NOT NULL AND new.total IS NOT NULL
  BEGIN SELECT RAISE(ABORT, 'lm_jobs: the job has begun, its rows are in lm_job_rows and its query is not asked again; set total = NULL in the same UPDATE to begin anew, without the answers so far, or with them by lm_run(job, ''{"refresh":true}'')'); END;
)";

// INSERT OR REPLACE deletes without a trigger.
constexpr char kReplaceTrigger[] = R"(
CREATE TRIGGER IF NOT EXISTS {db}.lm_jobs_replace AFTER INSERT ON lm_jobs WHEN new.total IS NULL
  BEGIN DELETE FROM lm_job_rows WHERE job = new.name; END;
)";

// A job that is copied with its total, and without its rows, would be done before it began.
constexpr char kBegunTrigger[] = R"(
CREATE TRIGGER IF NOT EXISTS {db}.lm_jobs_begun BEFORE INSERT ON lm_jobs
  WHEN new.total IS NOT NULL AND NOT EXISTS (SELECT 1 FROM lm_job_rows WHERE job = new.name)
  BEGIN SELECT RAISE(ABORT, 'lm_jobs: total is what lm_run() writes down: leave it out of a new job (to copy one that has begun, copy its lm_job_rows first)'); END;
)";

// To leave them out when rows are counted, without reading the rows.
constexpr char kVanishedIndex[] = R"(
CREATE INDEX IF NOT EXISTS {db}.lm_job_rows_vanished ON lm_job_rows(job, state)
  WHERE vanished IS NOT NULL;
)";

// The rows follow. Any that have the new name already are of no job, unless it is a job whose rows
// an earlier version has left behind, which gets them back.
constexpr char kRenameTrigger[] = R"(
CREATE TRIGGER IF NOT EXISTS {db}.lm_jobs_rename AFTER UPDATE OF name ON lm_jobs
  WHEN new.name <> old.name
  BEGIN
    DELETE FROM lm_job_rows WHERE job = new.name
      AND EXISTS (SELECT 1 FROM lm_job_rows WHERE job = old.name);
    UPDATE lm_job_rows SET job = new.name WHERE job = old.name;
  END;
)";

// Of lm_job_batches, which is there once a job was handed to a Batch API. What is under way there
// bears the job's name.
constexpr char kBatchesRenameTriggers[] = R"(
CREATE TRIGGER IF NOT EXISTS {db}.lm_job_batches_busy BEFORE UPDATE OF name ON lm_jobs
  WHEN new.name <> old.name
    AND EXISTS (SELECT 1 FROM lm_job_batches WHERE job = old.name AND state <> 'ended')
  BEGIN SELECT RAISE(ABORT, 'lm_jobs: a server has requests of the job under this name (lm_job_batches); it can be renamed once lm_batch_poll() has brought the answers'); END;
CREATE TRIGGER IF NOT EXISTS {db}.lm_job_batches_rename AFTER UPDATE OF name ON lm_jobs
  WHEN new.name <> old.name
  BEGIN UPDATE lm_job_batches SET job = new.name WHERE job = old.name; END;
)";

// An earlier version's, which had a refresh, too, forget what is under way.
constexpr char kDropBatchesAnew[] = "DROP TRIGGER IF EXISTS {db}.lm_job_batches_anew;";

// As lm_jobs_replace.
constexpr char kBatchesReplaceTrigger[] = R"(
CREATE TRIGGER IF NOT EXISTS {db}.lm_job_batches_replace AFTER INSERT ON lm_jobs
  WHEN new.total IS NULL
  BEGIN DELETE FROM lm_job_batches WHERE job = new.name; END;
)";

// What tables that an earlier version made have not: table, column.
constexpr const char* kLaterColumns[][2] = {
    {"lm_jobs", "created"},   {"lm_jobs", "began"},        {"lm_jobs", "ended"},
    {"lm_jobs", "status"},    {"lm_job_rows", "answered"}, {"lm_job_rows", "prompt_version"},
    {"lm_job_rows", "model"}, {"lm_job_rows", "vanished"}};

// Whether the database has an object of that name, of whatever kind.
absl::StatusOr<bool> Has(JobDatabase& database, absl::string_view name) {
  ASSIGN_OR_RETURN(
      Statement find,
      Statement::Prepare(database.db(),
                         database.Sql("SELECT 1 FROM {db}.sqlite_master WHERE name = ?")));
  return find.Bind(1, name).Step();
}

// The statements that add what the tables have not; empty where that is nothing.
absl::StatusOr<std::string> Missing(JobDatabase& database) {
  std::string missing;
  ASSIGN_OR_RETURN(
      Statement columns,
      Statement::Prepare(database.db(), "SELECT 1 FROM pragma_table_info(?, ?) WHERE name = ?"));
  for (const auto& [table, column] : kLaterColumns) {
    columns.Bind(1, table).Bind(2, database.own() ? "main" : database.schema()).Bind(3, column);
    ASSIGN_OR_RETURN(const bool found, columns.Step());
    columns.Reset();
    if (!found)
      absl::StrAppend(&missing, "ALTER TABLE {db}.", table, " ADD COLUMN ", column, " TEXT;");
  }
  ASSIGN_OR_RETURN(const bool has_trigger, Has(database, "lm_jobs_query"));
  if (!has_trigger) missing += kQueryTrigger;
  ASSIGN_OR_RETURN(const bool replaces, Has(database, "lm_jobs_replace"));
  if (!replaces) missing += kReplaceTrigger;
  ASSIGN_OR_RETURN(const bool looks_at_total, Has(database, "lm_jobs_begun"));
  if (!looks_at_total) missing += kBegunTrigger;
  ASSIGN_OR_RETURN(const bool has_index, Has(database, "lm_job_rows_vanished"));
  if (!has_index) missing += kVanishedIndex;
  ASSIGN_OR_RETURN(const bool follows, Has(database, "lm_jobs_rename"));
  if (!follows) missing += kRenameTrigger;
  ASSIGN_OR_RETURN(const bool has_batches, Has(database, "lm_job_batches"));
  ASSIGN_OR_RETURN(const bool batches_follow, Has(database, "lm_job_batches_rename"));
  if (has_batches && !batches_follow) missing += kBatchesRenameTriggers;
  ASSIGN_OR_RETURN(const bool replaces_batches, Has(database, "lm_job_batches_replace"));
  if (has_batches && !replaces_batches) missing += kBatchesReplaceTrigger;
  ASSIGN_OR_RETURN(const bool forgets_batches, Has(database, "lm_job_batches_anew"));
  if (forgets_batches) missing += kDropBatchesAnew;
  return database.Sql(missing);
}

}  // namespace

absl::Status CreateJobTables(sqlite3* db, absl::string_view schema) {
  const std::string sql = absl::StrCat(kJobSchema, kQueryTrigger, kReplaceTrigger, kBegunTrigger,
                                       kVanishedIndex, kRenameTrigger);
  return Execute(db, absl::StrReplaceAll(sql, {{"{db}", QuotedName(schema)}}).c_str());
}

absl::Status UpgradeJobTables(JobDatabase& database) {
  ASSIGN_OR_RETURN(const std::string missing, Missing(database));
  if (missing.empty()) return absl::OkStatus();
  return database.Transact([&]() -> absl::Status {
    ASSIGN_OR_RETURN(const std::string still, Missing(database));  // another may have done it
    return Execute(database.db(), still.c_str());
  });
}

}  // namespace lm
