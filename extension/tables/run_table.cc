// lm_run(job [, options]): runs a job that is stored in the database, or goes on with it
//   -> total, done, failed, cached, rows_per_second, tokens_per_second, eta_seconds, seconds, hint,
//      joined, changed, vanished, stopped, submitted
//
//   INSERT INTO lm_jobs(name, query, system, target) VALUES ('label',
//     'SELECT id, body FROM reviews WHERE label IS NULL',
//     'Label the review: positive, negative or mixed.',
//     'UPDATE reviews SET label = :value WHERE id = :id');
//   SELECT * FROM lm_run('label');                             -- a row a second, one at the end
//   SELECT id, error FROM lm_job_rows WHERE job = 'label' AND state = 'failed';
//   SELECT * FROM lm_run('label', '{"retry":true}');           -- those once more
//   SELECT * FROM lm_run('label', '{"refresh":true}');         -- what has changed since, in cron
//   DELETE FROM lm_jobs WHERE name = 'label';                  -- and its rows with it
//
// A job is a row of lm_jobs. The first INSERT into lm_jobs makes that table and lm_job_rows; from
// then on they are ordinary tables of the main database (INSERT INTO a.lm_jobs: of the attached
// database a), for any program to read. A job belongs to the database that holds it.
//   query    SELECT id, prompt [, system]; every id once. It is asked when the job first runs, and
//            its rows are kept in lm_job_rows: later changes of the source do not change the job,
//            not even that it is gone, until a run refreshes it. It may read lm_job_rows, too, as
//            they were before
//   target   one INSERT, UPDATE or DELETE that takes an answer: :id, :prompt (what was asked),
//            :value (the answer), :error. NULL: the answers stay in lm_job_rows.value, where they
//            are in any case
//   system   the system prompt of all rows that have none of their own
//   options  those of generate(), the same for all rows; with "summarize":true the rows are
//            answered as lm_summarize() does, with its `combine` and `part_tokens`: the system
//            prompt is the instruction, and texts longer than the context are read in parts
// A job may be renamed (UPDATE lm_jobs SET name = ...): its rows follow, and a run that has claimed
// some goes on under the new name. A run or an export that has claimed none ends with an error. So
// does a run whose job is replaced or changed (query, target, system, options) meanwhile, or has
// its query asked anew: it writes no other answer down, for that would be one to what was asked
// before.
//
// WHAT IS GUARANTEED
//
// An answer, its row's state and what the target does with it are one transaction: a row is done
// with all of that, or not at all, whatever dies in between. Running a job again goes on where it
// was. Each row is answered by one run, and its answer stored once, however many runs and processes
// work on the job at the same time. A run ends when all rows that it has found are done or failed;
// those that others have claimed are waited for, and taken over where their process has ended or
// has been silent for `lease_ms`. What is added while it runs, or set back to 'waiting' after it
// was answered (by a trigger, say), is for the next run. At most `chunk` rows are claimed by a run
// and not committed yet: that much may have to be generated again after a kill. An answer that
// cannot be stored is a failure of its row, and of what the target did before it failed nothing
// stays (not even with OR FAIL). Rows are claimed in the query's order, 4096 at a time,
// and of those in the order of their texts, whose common beginnings are computed once. Other
// writers wait for one commit at most; while the model works the database is not locked at all.
// (The query's rows are copied in one transaction, too.) A run that begins waits for others' locks
// as long as your connection does (PRAGMA busy_timeout; 5 seconds where none is set), and then ends
// with an error; once it has claimed rows it waits ten minutes, since answers would be lost.
//
// WHAT A REFRESH DOES
//
// The query is asked again. What it gives is held against lm_job_rows, by the ids: new rows join;
// answered ones whose prompt, system prompt, options or model are no longer those of the answer
// wait again (done or failed), and keep that answer until there is another, even where they fail;
// those that it gives no more are marked (lm_job_rows.vanished), keep all that they have, and count
// no longer; the others are not touched, nor generated again. A row that comes back has its answer
// still, and the target takes it once more: so, too, the one that another run was at meanwhile,
// which is kept and not given to the target before. All this is one transaction, before the first
// row is generated: killed at any moment, the same statement goes on, and a plain lm_run() does,
// too. So the query of such a job gives all its rows ("WHERE label IS NULL" would give each only
// until it has an answer), and the target is one that may take a row's second answer: an UPDATE, or
// INSERT OR REPLACE.
//
// The question is kept with its answer: prompt_version is a digest of the prompt, the system prompt
// and those options that change an answer (not on_error, priority and the like), model the digest
// of the model's file. What an older version of this extension answered has neither, and is judged
// by its texts alone, once. A changed query needs total = NULL in the same UPDATE, as ever; so does
// another model as the connection's default (model = NULL), unless the job's options name it. A
// plain run takes no other model without that, and no other file of the same name.
//
// WHAT A JOB MAY DO
//
// It runs on a connection of its own to the same file, which behaves as yours does
// (inherit_settings.h): foreign keys, triggers, checks, limits, case_sensitive_like and how the
// file is written. Its query and target know the tables of that file, SQLite's own functions, and
// of ours lm_chunks, lm_token_count, lm_tokenize, lm_detokenize, lm_render, lm_prompt and
// lm_field_order: SELECT docs.id || '/' || n, chunk FROM docs, lm_chunks(body). They know neither
// temporary nor attached tables (a job must be able to go on tomorrow, without them), nor functions
// and collations that others have registered, nor functions that generate: the job does that. They
// come with the file, so they are trusted less than you: load_extension() and writable schemas are
// off, DEFENSIVE is on; triggers may keep an index of full-text search. With PRAGMA query_only
// nothing is run. A file that was renamed, replaced or deleted since it was opened is refused.
//
// An authorizer (sqlite3_set_authorizer) cannot be copied to another connection. It is asked on
// yours, before the job begins, whether it allows what the job's statements do there, and its
// denial is the job's error; so is a column or table that it would hide (SQLITE_IGNORE), and a
// PRAGMA whose value may not be known. What it makes of one of SQLite's own functions
// (SQLITE_IGNORE) cannot be followed. Hooks of the host (update, commit, trace) do not see the job.
//
// A database in memory has only your connection, and the guarantees hold as far as they can be put
// to a test there; a job then may write to ordinary tables of that database only, read those and
// its full-text and R-tree tables, json_each, json_tree and lm_chunks, and call SQLite's own
// functions. Not inside a transaction; and with a rollback journal not while another statement of
// the same connection reads the database.
//
// A row that fails is 'failed' in lm_job_rows, with its error, and the others go on; the target is
// not run for it. With "on_error":"json" in the job's options it is, with lm_try's object as the
// :value; with "on_error":"error" the first failure ends the run. An answer that the target refuses
// (a constraint) is a failure of its row. A NULL prompt has the answer NULL.
//
// An answer that the target has refused is kept with the row, and no run asks for it again as long
// as it is one to what the row asks. A target that can take no answer at all (it can no more be
// prepared) ends the run with an error; the rows whose answers have come wait, and keep them.
//
// What all rows would meet is no row's failure: a server that cannot be reached, or fails at every
// row, a key or an account that is refused. The run ends with an error then, and its rows wait as
// if it had not claimed them; of an outage only once `outage_seconds` are over. A row fails for
// itself where the server goes on to answer others, or the run's probe (job_trouble.h). So it is
// with a model of this process that is lost (its file was cut, its packed weights are damaged),
// which ends the run at once, and with memory that is not there, which is waited for.
//
// options of the run:
//   chunk       rows under way and not committed; 128, but no more than have 64 MiB of texts.
//               Commits come with every half of it, or every second
//   max_errors  how many rows may fail before the run ends with an error; no limit unless given
//   retry       true: rows that failed before are tried again (not those that have vanished). An
//               answer that only the target has refused is kept, and given to it again
//   refresh     true: the query is asked again, and what has changed is done
//   progress_ms the least time between two rows of the result; 1000
//   lease_ms    after how long without a sign of life another run's claims are void; 30000
//   outage_seconds  how long the model's servers are waited for when they cannot be reached or fail
//               at every row: 60. 0: not beyond the tries that each row has (lm_models: retries)
//   max_seconds, max_total_tokens, max_cost
//               the run's budgets: its time on the clock, the tokens of its prompts and answers,
//               and what they come to at the model's price_in and price_out (lm_models). Where one
//               is reached the run ends well, with what is answered by then; the other rows wait
//               for the next run, which has budgets of its own. `stopped` and lm_jobs.status say
//               which it was. The job's own options may have them, too, and so may lm_settings; 0
//               is none. (timeout_ms in the job's options is a row's own: see generate.)
//   database    which of the databases (main, or an attached one) has the job; unless given, the
//               first one that does
//
// No run claims rows that lm_batch_submit() has handed to a server before their batch has ended:
// `submitted` counts them, and a run that finds nothing else ends, and lm_jobs.status says so.
//
// total, done and failed count the job's rows; cached are those of this run that needed no
// generation. The rates are this run's: rows of the job (others' too), tokens generated. `hint` is
// what lm_stats.hint says of the model, with the first row already: that it was made for something
// else than it is asked; and that the target has changed no row at all by any of this run's
// answers, where that is so. joined, changed and vanished count what this run's refresh has found.
// A row is submitted only where its prompt and the most tokens of its answer (max_tokens) are left
// of a budget: none is exceeded, but by prompts whose tokens are guessed (spending.h), and the last
// rows before the end go one by one. Texts that are read in parts go one after the other then: of
// many that have begun, none might have enough left.
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "engine/base/status_macros.h"
#include "extension/binding/snapshot_table.h"
#include "extension/binding/table_function.h"
#include "extension/connection/own_options.h"
#include "extension/jobs/job_run.h"
#include "extension/tables/job_cursor.h"
#include "extension/tables/model_hint.h"
#include "extension/tables/tables.h"

namespace lm {
namespace {

constexpr int64_t kMost = 1000000;

absl::StatusOr<JobRunOptions> ReadRunOptions(const std::optional<std::string>& json) {
  ASSIGN_OR_RETURN(OwnOptions own,
                   OwnOptions::Take(json, {"chunk", "max_errors", "retry", "refresh", "progress_ms",
                                           "lease_ms", "outage_seconds", "max_seconds",
                                           "max_total_tokens", "max_cost", "database"}));
  RETURN_IF_ERROR(own.CheckNoOthers());
  JobRunOptions options;
  ASSIGN_OR_RETURN(options.chunk, own.Integer("chunk", options.chunk, 1, kMost));
  ASSIGN_OR_RETURN(options.max_errors, own.Integer("max_errors", options.max_errors, 0, INT64_MAX));
  ASSIGN_OR_RETURN(options.retry, own.Bool("retry", options.retry));
  ASSIGN_OR_RETURN(options.refresh, own.Bool("refresh", options.refresh));
  ASSIGN_OR_RETURN(const int64_t progress_ms, own.Integer("progress_ms", 1000, 0, INT32_MAX));
  options.progress = absl::Milliseconds(progress_ms);
  ASSIGN_OR_RETURN(const int64_t lease_ms, own.Integer("lease_ms", 30000, 3000, INT32_MAX));
  options.lease = absl::Milliseconds(lease_ms);
  ASSIGN_OR_RETURN(const int64_t outage, own.Integer("outage_seconds", 60, 0, INT32_MAX));
  options.outage = absl::Seconds(outage);
  if (own.Has("max_seconds")) {
    ASSIGN_OR_RETURN(options.max_seconds, own.Integer("max_seconds", 0, 0, INT32_MAX));
  }
  if (own.Has("max_total_tokens")) {
    ASSIGN_OR_RETURN(options.max_total_tokens, own.Integer("max_total_tokens", 0, 0, INT64_MAX));
  }
  ASSIGN_OR_RETURN(options.max_cost, own.Amount("max_cost"));
  ASSIGN_OR_RETURN(options.database, own.Text("database"));
  return options;
}

class RunCursor : public JobCursor<JobRun, JobProgress> {
 public:
  enum Column {
    kTotal,
    kDone,
    kFailed,
    kCached,
    kRowsPerSecond,
    kTokensPerSecond,
    kEtaSeconds,
    kSeconds,
    kHint,
    kJoined,
    kChanged,
    kVanished,
    kStopped,
    kSubmitted,
    kNumColumns
  };

  using JobCursor::JobCursor;

  absl::StatusOr<std::unique_ptr<JobRun>> Begin(const std::string& job,
                                                const TableArguments& args) override {
    ASSIGN_OR_RETURN(const std::optional<std::string> json, args.Text(1));
    ASSIGN_OR_RETURN(const JobRunOptions options, ReadRunOptions(json));
    return JobRun::Begin(connection(), job, options);
  }

  absl::Status Value(int column, sqlite3_context* context) override {
    const double seconds = absl::ToDoubleSeconds(row().elapsed);
    auto rate = [&](int64_t count) {
      if (seconds > 0) sqlite3_result_double(context, static_cast<double>(count) / seconds);
    };
    switch (column) {
      case kTotal:
        sqlite3_result_int64(context, row().counts.total());
        break;
      case kDone:
        sqlite3_result_int64(context, row().counts.done);
        break;
      case kFailed:
        sqlite3_result_int64(context, row().counts.failed);
        break;
      case kCached:
        sqlite3_result_int64(context, row().cached);
        break;
      case kRowsPerSecond:
        rate(row().finished);
        break;
      case kTokensPerSecond:
        rate(row().tokens_out);
        break;
      case kEtaSeconds: {
        const int64_t left = row().counts.waiting + row().counts.running;
        if (left == 0 && row().trouble.empty()) {
          sqlite3_result_double(context, 0);
        } else if (row().finished > 0) {
          sqlite3_result_double(
              context, seconds * static_cast<double>(left) / static_cast<double>(row().finished));
        }
        break;
      }
      case kSeconds:
        sqlite3_result_double(context, seconds);
        break;
      case kHint: {
        std::string hint = ModelHint(connection(), work().generator());
        if (row().unchanged > 0) {
          absl::StrAppend(&hint, hint.empty() ? "" : "; ", "the target changed no row for ",
                          row().unchanged, " answers: does it look for the query's ids (:id)?");
        }
        if (!row().trouble.empty()) {
          absl::StrAppend(&hint, hint.empty() ? "" : "; ", "waits for an answer: ", row().trouble);
        }
        if (!hint.empty()) ResultText(context, hint);
        break;
      }
      case kJoined:
        sqlite3_result_int64(context, row().changes.joined);
        break;
      case kChanged:
        sqlite3_result_int64(context, row().changes.changed);
        break;
      case kVanished:
        sqlite3_result_int64(context, row().changes.vanished);
        break;
      case kStopped:
        if (!row().stopped.empty()) ResultText(context, row().stopped);
        break;
      case kSubmitted:
        sqlite3_result_int64(context, row().counts.submitted);
        break;
    }
    return absl::OkStatus();
  }
};

constexpr TableFunctionSpec kRunSpec = {
    .name = "lm_run",
    .columns =
        "total INTEGER, done INTEGER, failed INTEGER, cached INTEGER, "
        "rows_per_second REAL, tokens_per_second REAL, eta_seconds REAL, seconds REAL, hint TEXT, "
        "joined INTEGER, changed INTEGER, vanished INTEGER, stopped TEXT, submitted INTEGER",
    .num_columns = RunCursor::kNumColumns,
    .arguments = {"job", "options"},
    .missing = "the name of a job is missing: lm_run(job)",
    .open = &MakeCursor<RunCursor>,
};

}  // namespace

int RegisterRun(const std::shared_ptr<Connection>& connection) {
  return RegisterTemporaryTableFunction(connection, &kRunSpec);
}

}  // namespace lm
