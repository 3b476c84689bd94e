// sqlite-lm label: a column of a table from another one, as a job that can be stopped and gone on
// with.
#include <cstdio>
#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "engine/base/printable.h"
#include "engine/base/status_macros.h"
#include "extension/cli/command.h"
#include "extension/cli/session.h"
#include "extension/cli/terminal.h"

namespace lm::cli {
namespace {

std::string Quoted(absl::string_view name) {
  return absl::StrCat("\"", absl::StrReplaceAll(name, {{"\"", "\"\""}}), "\"");
}

// What SQLite calls the number of a row, unless a column of the table has that name.
constexpr const char* kRowNumbers[] = {"rowid", "_rowid_", "oid"};

absl::StatusOr<bool> HasColumn(Session& session, const std::string& table,
                               const std::string& column) {
  ASSIGN_OR_RETURN(
      const auto columns,
      session.Query("SELECT 1 FROM pragma_table_xinfo(?1) WHERE name = ?2 COLLATE NOCASE",
                    {table, column}));
  return !columns.empty();
}

// Where the table has columns of all these names, its rows have no number that could be named.
absl::StatusOr<std::string> KeyOf(Session& session, const Arguments& arguments) {
  if (arguments.Has("key")) return Quoted(arguments.Get("key"));
  for (const char* name : kRowNumbers) {
    ASSIGN_OR_RETURN(const bool is_column, HasColumn(session, arguments.Get("table"), name));
    if (!is_column) return name;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("the columns of the table ", arguments.Get("table"),
                   " have all the names of its rowid; --key NAME names the one that tells its "
                   "rows apart"));
}

// A column of the table, in statements that name other tables, too.
std::string Column(const Arguments& arguments, const std::string& quoted) {
  return absl::StrCat(Quoted(arguments.Get("table")), ".", quoted);
}

// What a row asks, as lm_job_rows has it: numbers are texts there.
std::string PromptOf(const Arguments& arguments) {
  const std::string column = Column(arguments, Quoted(arguments.Get("column")));
  return absl::StrCat("CASE typeof(", column, ") WHEN 'blob' THEN ", column, " ELSE CAST(", column,
                      " AS TEXT) END");
}

// Only a row that is still without an answer and the one that was asked about: VACUUM gives rows
// other rowids where no INTEGER PRIMARY KEY keeps them. An index of the key finds it, whatever its
// collation, and rows that this takes to be equal are told apart by their bytes, as in lm_job_rows;
// an index of the column that is written would find all rows that wait.
std::string Target(const Arguments& arguments, const std::string& row_key) {
  const std::string key = Column(arguments, row_key), into = Quoted(arguments.Get("into"));
  return absl::StrCat("UPDATE ", Quoted(arguments.Get("table")), " SET ", into, " = :value WHERE ",
                      key, " = :id AND ", key, " = :id COLLATE BINARY AND +",
                      Column(arguments, into), " IS NULL AND ", PromptOf(arguments), " IS :prompt");
}

// What lm_run last said of the job.
struct Progress {
  double total = 0, done = 0, failed = 0, rows_per_second = 0, eta_seconds = 0;
  std::string stopped;  // the budget that ended it; empty: none
};

struct Job {
  std::string name, key, query, target, system, options;
};

// Whether it was not there.
absl::StatusOr<bool> AddColumn(Session& session, const std::string& table,
                               const std::string& column) {
  ASSIGN_OR_RETURN(const bool is_there, HasColumn(session, table, column));
  if (is_there) return false;
  for (const char* own : kRowNumbers) {
    if (!absl::EqualsIgnoreCase(column, own)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "--into ", column, ": that is what SQLite calls the number of a row; name another column"));
  }
  RETURN_IF_ERROR(session.Run(
      absl::StrCat("ALTER TABLE ", Quoted(table), " ADD COLUMN ", Quoted(column), " TEXT")));
  return true;
}

// The condition is one by itself, and within the query's parentheses.
absl::Status CheckCondition(Session& session, const Arguments& arguments, const Job& job) {
  const std::string alone = absl::StrCat("SELECT 1 FROM ", Quoted(arguments.Get("table")),
                                         " WHERE\n", arguments.Get("where"));
  ASSIGN_OR_RETURN(const Statement statement, Statement::Prepare(session.db(), alone));
  if (sqlite3_bind_parameter_count(statement.get()) > 0) {
    return absl::InvalidArgumentError("nobody gives its parameters their values");
  }
  return session.Run(absl::StrCat("EXPLAIN ", job.query));
}

// Makes the column where it is not there, unless the job's query, with its --where, is wrong: that
// may name the column.
absl::StatusOr<bool> PutColumn(Session& session, const Arguments& arguments, const Job& job) {
  ASSIGN_OR_RETURN(const bool made,
                   AddColumn(session, arguments.Get("table"), arguments.Get("into")));
  if (!arguments.Has("where")) {
    RETURN_IF_ERROR(session.Run(absl::StrCat("EXPLAIN ", job.query)));
    return made;
  }
  const absl::Status right = CheckCondition(session, arguments, job);
  if (!right.ok()) return absl::Status(right.code(), absl::StrCat("--where: ", right.message()));
  return made;
}

// Takes back the column that was made for a job which could not begin.
absl::Status DropColumn(Session& session, const Arguments& arguments, const Job& job) {
  RETURN_IF_ERROR(session.Run("BEGIN IMMEDIATE"));
  const std::string table = Quoted(arguments.Get("table")), column = Quoted(arguments.Get("into"));
  const auto used = session.Query(
      absl::StrCat("SELECT 1 FROM lm_jobs WHERE name = ?1 AND coalesce(total, began) IS NOT NULL "
                   "UNION ALL SELECT 1 FROM (SELECT 1 FROM ",
                   table, " WHERE ", column, " IS NOT NULL LIMIT 1)"),
      {job.name});
  absl::Status status = used.status();
  if (status.ok() && used->empty()) {
    status = session.Run(absl::StrCat("ALTER TABLE ", table, " DROP COLUMN ", column));
  }
  if (status.ok()) status = session.Run("COMMIT");
  if (!status.ok()) session.Run("ROLLBACK").IgnoreError();
  return status;
}

// Which of the job's rows, in lm_job_rows AS lm_asked, its next run asks.
absl::StatusOr<std::string> AreToBeAsked(Session& session) {
  // Tables that an earlier version has made lack the column until the job is run.
  ASSIGN_OR_RETURN(const auto tells_vanished,
                   session.Query("SELECT 1 FROM pragma_table_info('lm_job_rows') WHERE name = "
                                 "'vanished'",
                                 {}));
  return absl::StrCat("lm_asked.job = ?1 AND lm_asked.state IN ('waiting', 'running')",
                      tells_vanished.empty() ? "" : " AND lm_asked.vanished IS NULL");
}

// Goes on with the job of that name where it is the same and not over, or no others than its rows
// that failed are to be asked, whose answers it may have; else begins it. One that was never begun,
// as where its first run could not be, is held to nothing.
absl::Status PutJob(Session& session, const Job& job, const Arguments& arguments) {
  const bool restart = arguments.Has("restart");
  ASSIGN_OR_RETURN(const std::string asked, AreToBeAsked(session));
  // Rows that were set to wait since it ended, by whomever, may have answers that are kept.
  const std::string is_over = absl::StrCat(
      "ended IS NOT NULL AND NOT EXISTS (SELECT 1 FROM lm_job_rows AS lm_asked WHERE ", asked, ")");
  ASSIGN_OR_RETURN(
      const auto known,
      session.Query(
          absl::StrCat("SELECT query, coalesce(target, ''), coalesce(system, ''), "
                       "coalesce(options, ''), ",
                       is_over,
                       ", coalesce(total, began) IS NOT NULL FROM lm_jobs WHERE name = ?1"),
          {job.name}));
  if (!known.empty()) {
    const Session::Values& row = known[0];
    const bool same = row[0] == job.query && row[1] == job.target && row[2] == job.system &&
                      row[3] == job.options;
    const bool over = row[4] == "1", begun = row[5] == "1";
    const bool goes_on = !over || arguments.Has("retry");
    if (same && goes_on && !restart) return absl::OkStatus();
    if (begun && !over && !restart) {
      return absl::FailedPreconditionError(absl::StrCat(
          "the job '", job.name,
          "' was begun with other arguments, or by another version, and is not over; go on with "
          "those, or --restart (answers that the table has stay)"));
    }
    RETURN_IF_ERROR(session.Run("DELETE FROM lm_jobs WHERE name = ?1", {job.name}));
  }
  return session.RunTyped(
      "INSERT INTO lm_jobs(name, query, target, system, options) VALUES (?1, ?2, ?3, ?4, ?5)",
      {job.name, job.query, job.target, job.system, job.options});
}

// The column and the job, or neither. The same command may be given twice at a time: whoever comes
// second waits, and finds what the first has made. Whether it made the column.
absl::StatusOr<bool> Prepare(Session& session, const Arguments& arguments, const Job& job) {
  RETURN_IF_ERROR(session.Run("BEGIN IMMEDIATE"));
  const absl::StatusOr<bool> made = PutColumn(session, arguments, job);
  absl::Status status = made.status();
  if (status.ok()) status = PutJob(session, job, arguments);
  if (status.ok()) status = session.Run("COMMIT");
  if (status.ok()) return *made;
  session.Run("ROLLBACK").IgnoreError();  // SQLite may have done so
  return status;
}

// Whether rows that are to be asked are no longer as they were when the job began. The table's rows
// are looked up among the job's, and not the other way round: --key may have no index.
absl::StatusOr<bool> HaveChanged(Session& session, const Arguments& arguments, const Job& job) {
  ASSIGN_OR_RETURN(const std::string asked, AreToBeAsked(session));
  ASSIGN_OR_RETURN(
      const auto changed,
      session.Query(
          absl::StrCat("SELECT (SELECT count(*) FROM lm_job_rows AS lm_asked WHERE ", asked,
                       ") > (SELECT count(DISTINCT lm_asked.number) FROM ",
                       Quoted(arguments.Get("table")), " CROSS JOIN lm_job_rows AS lm_asked WHERE ",
                       asked, " AND lm_asked.id = +", Column(arguments, job.key), " AND ",
                       Column(arguments, Quoted(arguments.Get("into"))),
                       " IS NULL AND lm_asked.prompt IS ", PromptOf(arguments), ")"),
          {job.name}));
  return changed[0][0] == "1";
}

// How many rows an ended job has left without an answer, but for those that failed: they have come,
// or were changed, since they were asked about.
absl::StatusOr<int64_t> CountLeft(Session& session, const Job& job) {
  ASSIGN_OR_RETURN(
      const auto count,
      session.Query(
          absl::StrCat("WITH lm_left(id, prompt) AS (\n", job.query,
                       "\n) SELECT count(*) FROM lm_left WHERE NOT EXISTS (SELECT 1 FROM "
                       "lm_job_rows AS lm_asked WHERE lm_asked.job = ?1 AND lm_asked.id = "
                       "+lm_left.id AND state = 'failed')"),
          {job.name}));
  return std::strtoll(count[0][0].c_str(), nullptr, 10);
}

absl::StatusOr<Progress> RunJob(Session& session, const std::string& name, bool retry,
                                bool refresh) {
  const Session::JobsWait waits(&session);
  Progress progress;
  StatusLine line;
  Json options = Json::MakeObject();
  options.Add("progress_ms", 250).Add("retry", retry).Add("refresh", refresh);
  RETURN_IF_ERROR(session.Each(
      "SELECT total, done, failed, rows_per_second, eta_seconds, hint, stopped, seconds FROM "
      "lm_run(?1, ?2)",
      {name, options.Dump()}, [&](const Session::Values& row) {
        auto number = [&row](size_t i) { return std::strtod(row[i].c_str(), nullptr); };
        progress = {number(0), number(1), number(2), number(3), number(4), row[6]};
        // What has stopped it is the end of what is said.
        const std::string hints =
            row[6].empty() ? row[5] : absl::StrReplaceAll(row[5], {{row[6], ""}});
        if (const std::string hint = session.NewHints(hints); !hint.empty()) {
          line.Clear();
          Say(hint);
        }
        if (progress.total == 0 && row[4].empty()) {  // its rows are not written down before
          line.Show(absl::StrCat("the model's server has not answered yet, ", Duration(number(7))));
          return true;
        }
        const double over = progress.done + progress.failed;
        const std::string failed =
            progress.failed > 0 ? absl::StrCat(", ", progress.failed, " failed") : "";
        const std::string left =  // not known before the first is answered
            row[4].empty() ? "" : absl::StrCat(", ", Duration(progress.eta_seconds), " left");
        line.Show(absl::StrCat(Bar(progress.total > 0 ? over / progress.total : 1, 30), " ", over,
                               " of ", progress.total, failed, ", ",
                               Fixed(progress.rows_per_second, 1), " rows/s", left));
        return true;
      }));
  return progress;
}

// Names that are not there, before anything is written.
absl::Status CheckNames(Session& session, const Arguments& arguments, const Job& job) {
  const std::string table = arguments.Get("table");
  const std::string from = absl::StrCat(" FROM ", Quoted(table), " LIMIT 0");
  RETURN_IF_ERROR(session.Run(absl::StrCat("SELECT ", Quoted(arguments.Get("column")), from)));
  const absl::Status key = session.Run(absl::StrCat("SELECT ", job.key, from));
  if (arguments.Has("key")) return key;
  ASSIGN_OR_RETURN(const auto view,  // whose rowid is NULL
                   session.Query("SELECT 1 FROM sqlite_schema WHERE type = 'view' AND name = ?1 "
                                 "COLLATE NOCASE",
                                 {table}));
  if (view.empty() && !absl::IsInvalidArgument(key)) return key;
  return absl::InvalidArgumentError(
      absl::StrCat("the table ", arguments.Get("table"),
                   " has no rowid to tell its rows apart; --key NAME names the column that does"));
}

absl::StatusOr<Job> MakeJob(Session& session, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const std::string table, arguments.Required("table"));
  ASSIGN_OR_RETURN(const std::string column, arguments.Required("column"));
  ASSIGN_OR_RETURN(const std::string into, arguments.Required("into"));
  if (into.empty()) return absl::InvalidArgumentError("--into is empty: it names a column");
  ASSIGN_OR_RETURN(const std::string instruction, arguments.Required("instruction"));
  std::vector<std::pair<std::string, Json>> more;
  if (arguments.Has("choices")) {
    const std::optional<Json> own = Json::Parse(arguments.Get("options"));
    if (own.has_value() && own->Has("choices")) {
      return absl::InvalidArgumentError("--choices and the choices of --options: one of them");
    }
    Json choices = Json::MakeArray();
    for (absl::string_view choice : absl::StrSplit(arguments.Get("choices"), ','))
      choices.Append(absl::StripAsciiWhitespace(choice));
    more.emplace_back("choices", std::move(choices));
  }
  ASSIGN_OR_RETURN(const std::string options, session.CallOptions(more));
  ASSIGN_OR_RETURN(const std::string key, KeyOf(session, arguments));
  std::string condition =
      absl::StrCat(Quoted(into), " IS NULL AND ", Quoted(column), " IS NOT NULL");
  if (arguments.Has("where"))
    absl::StrAppend(&condition, " AND (\n", arguments.Get("where"), "\n)");
  return Job{.name = absl::StrCat("label ", table, ".", into),
             .key = key,
             .query = absl::StrCat("SELECT ", key, ", ", Quoted(column), " FROM ", Quoted(table),
                                   " WHERE ", condition),
             .target = Target(arguments, key),
             .system = instruction,
             .options = options};
}

// What of it is an error: rows that failed, which are shown, and a budget that left some out.
absl::Status Outcome(Session& session, const Job& job, const Progress& progress) {
  std::vector<std::string> errors;
  if (progress.failed > 0) {
    RETURN_IF_ERROR(session.Each(
        "SELECT id, error FROM lm_job_rows WHERE job = ?1 AND state = 'failed' LIMIT 3", {job.name},
        [](const auto& row) {
          std::fprintf(stderr, "  row %s: %s\n", Printable(row[0]).c_str(),
                       Printable(row[1]).c_str());
          return true;
        }));
    errors.push_back(absl::StrCat("some rows failed: ",
                                  progress.stopped.empty()
                                      ? "the same command asks again about them and what has come "
                                        "since, --retry asks again about them alone"
                                      : "--retry asks again about them as well",
                                  " (lm_job_rows has all errors)"));
  }
  if (!progress.stopped.empty()) {
    errors.push_back(absl::StrCat(progress.stopped, ": the same command goes on with them"));
  }
  return errors.empty() ? absl::OkStatus() : absl::UnavailableError(absl::StrJoin(errors, "; "));
}

void SayWhatIsLeft(Session& session, const Job& job, bool retry) {
  const absl::StatusOr<int64_t> left = CountLeft(session, job);
  if (!left.ok() || *left == 0) return;
  Say(absl::StrCat(*left, *left == 1 ? " row has" : " rows have",
                   " come or changed since the job began: the same command",
                   retry ? " without --retry" : "", " asks about ", *left == 1 ? "it" : "them"));
}

// Why no row was asked, and what makes rows be asked again.
std::string NothingToAsk(const Arguments& arguments) {
  const std::string column = Quoted(arguments.Get("into"));
  const char *of = "", *condition = "";
  if (arguments.Has("where")) of = " of --where", condition = " WHERE ...";
  return absl::StrCat("no row", of, " has NULL in ", column, " and a text in ",
                      Quoted(arguments.Get("column")), "; to have them asked again, first: UPDATE ",
                      Quoted(arguments.Get("table")), " SET ", column, " = NULL", condition);
}

absl::Status RunLabel(const Arguments& arguments) {
  if (arguments.rest().size() != 1) {
    return absl::InvalidArgumentError(
        "one database is wanted: sqlite-lm label notes.db --table ...");
  }
  const std::string& path = arguments.rest()[0];
  ASSIGN_OR_RETURN(const auto session, Session::Open(path, arguments));
  if (session->read_only()) {
    return absl::PermissionDeniedError(
        absl::StrCat(path, ": it is read-only, and no answer could be written there"));
  }
  ASSIGN_OR_RETURN(const Job job, MakeJob(*session, arguments));
  RETURN_IF_ERROR(CheckNames(*session, arguments, job));
  const absl::StatusOr<bool> prepared = Prepare(*session, arguments, job);
  if (absl::IsUnavailable(prepared.status())) return InFile(path, prepared.status());
  ASSIGN_OR_RETURN(const bool made, prepared);
  ASSIGN_OR_RETURN(const bool changed, HaveChanged(*session, arguments, job));
  if (changed) Say("rows have changed since the job began: those that wait now are asked");
  const absl::StatusOr<Progress> progress =
      RunJob(*session, job.name, arguments.Has("retry"), /*refresh=*/changed);
  if (!progress.ok()) {
    if (!Session::interrupted()) {
      if (made) DropColumn(*session, arguments, job).IgnoreError();  // at worst it stays, empty
      return progress.status();
    }
    return absl::CancelledError(
        "stopped. What was answered is in the table; the same command goes on from there");
  }
  if (arguments.Has("json")) {
    std::printf(
        "{\"rows\":%.0f,\"done\":%.0f,\"failed\":%.0f,\"rows_per_second\":%.2f,\"stopped\":%s}\n",
        progress->total, progress->done, progress->failed, progress->rows_per_second,
        (progress->stopped.empty() ? Json() : Json(progress->stopped)).Dump().c_str());
  } else {
    std::printf("%.0f rows of %s.%s: %.0f answered, %.0f failed, %.1f rows/s\n", progress->total,
                arguments.Get("table").c_str(), arguments.Get("into").c_str(), progress->done,
                progress->failed, progress->rows_per_second);
    const bool is_over = progress->stopped.empty();
    if (progress->total == 0 && is_over) std::printf("%s\n", NothingToAsk(arguments).c_str());
  }
  if (progress->stopped.empty()) SayWhatIsLeft(*session, job, arguments.Has("retry"));
  return Outcome(*session, job, *progress);
}

}  // namespace

Command LabelCommand() {
  return {"label",
          "DATABASE",
          "fill a column of a table from another one",
          "Asks the model about each row whose --into is NULL, with the instruction as system "
          "prompt and the --column, if that is not NULL, as prompt,\n"
          "and writes the answers in short transactions. Ctrl-C stops it, and the same command "
          "goes on; kill -9 does no harm.\n"
          "A row that has an answer keeps it; UPDATE table SET into = NULL has all asked again.\n"
          "One whose text changes meanwhile is left as it is, and asked about the next time.",
          {{"table", "NAME", "the table (required)"},
           {"column", "NAME", "what is read (required)"},
           {"into", "NAME", "what is written, made where it is not there (required)"},
           {"instruction", "TEXT", "what to do with it (required)"},
           {"choices", "A,B,C", "the answer is one of these"},
           {"where", "SQL", "only these rows"},
           {"key", "NAME", "what tells the rows apart; unless given, the rowid"},
           {"retry", nullptr,
            "rows that failed once more, and no others but those that a stopped run has left"},
           {"restart", nullptr, "begin anew, whatever was asked before; answers stay"},
           {"json", nullptr, "the result as an object"}},
          true,
          RunLabel};
}

}  // namespace lm::cli
