// lm_job_diff(job_a, job_b): two jobs over the same rows, answer beside answer
//   -> id, a, b, same, state_a, state_b, tokens_a, tokens_b
//
//   -- Another instruction, on a few rows before it is given all of them.
//   INSERT INTO lm_jobs(name, query, system) VALUES
//     ('short', 'SELECT id, body FROM notes ORDER BY id LIMIT 200', 'Say it in one word.'),
//     ('long', 'SELECT id, body FROM notes ORDER BY id LIMIT 200', 'Say it in three words.');
//   SELECT done FROM lm_run('short'); SELECT done FROM lm_run('long');
//   SELECT avg(same) AS agreement, sum(tokens_a), sum(tokens_b) FROM lm_job_diff('short', 'long');
//   SELECT id, a, b FROM lm_job_diff('short', 'long') WHERE same = 0;
//
// A row for each id that one of the jobs has. `a` and `b` are the answers; `same` is 1 where they
// are the same text, 0 where not, and NULL where one of the jobs has no answer (its state says why:
// waiting, running, failed, NULL where it has no such row). tokens_a and tokens_b are what the row
// took, its prompt included. Rows that a refresh has marked as vanished are left out.
//
// It reads what lm_job_rows holds, and runs nothing. Each job is looked for in main, then in the
// attached databases.
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "engine/base/status_macros.h"
#include "extension/binding/table_function.h"
#include "extension/host/sql_tokens.h"
#include "extension/host/statement.h"
#include "extension/tables/tables.h"

namespace lm {
namespace {

// Within SQLITE_LIMIT_EXPR_DEPTH = 10, which SQLite advises against hostile SQL.
// ?1, ?2: the jobs' names; {a}, {b}: their rows; {given_a}, {given_b}: of which the query gives a.
constexpr char kRows[] = R"(/* sqlite-lm: lm_job_diff */
SELECT a.id, a.value, b.value,
       CASE WHEN a.state = 'done' AND b.state = 'done' THEN a.value IS b.value END,
       a.state, b.state, a.tokens_in + a.tokens_out, b.tokens_in + b.tokens_out
  FROM {a} AS a LEFT JOIN {b} AS b ON b.job = ?2 AND b.id = a.id AND {given_b}
  WHERE a.job = ?1 AND {given_a}
UNION ALL
SELECT b.id, NULL, b.value, NULL, NULL, b.state, NULL, b.tokens_in + b.tokens_out
  FROM {b} AS b LEFT JOIN {a} AS a ON a.job = ?1 AND a.id = b.id AND {given_a}
  WHERE b.job = ?2 AND {given_b} AND a.job IS NULL
)";

// Where a job is: a database's name as SQL has it, and whether its rows may vanish there.
struct JobPlace {
  std::string schema;
  bool vanishes = false;  // not in tables of an earlier version

  std::string Rows() const { return absl::StrCat(schema, ".lm_job_rows"); }
  std::string Given(absl::string_view of) const {
    return vanishes ? absl::StrCat(of, ".vanished IS NULL") : "1";
  }
};

absl::StatusOr<JobPlace> FindPlace(sqlite3* db, const std::string& job) {
  ASSIGN_OR_RETURN(Statement databases, Statement::Prepare(db,
                                                           "SELECT name FROM pragma_database_list "
                                                           "WHERE name <> 'temp' ORDER BY seq"));
  for (;;) {
    ASSIGN_OR_RETURN(const bool row, databases.Step());
    if (!row) break;
    ASSIGN_OR_RETURN(const std::string name, databases.Text(0));
    JobPlace place{.schema = QuotedName(name)};
    ASSIGN_OR_RETURN(Statement tables,
                     Statement::Prepare(db, absl::StrCat("SELECT count(*) FROM ", place.schema,
                                                         ".sqlite_master WHERE type = 'table' AND "
                                                         "name IN ('lm_jobs', 'lm_job_rows')")));
    RETURN_IF_ERROR(tables.Step().status());
    if (tables.Integer(0) < 2) continue;
    ASSIGN_OR_RETURN(
        Statement find,
        Statement::Prepare(db, absl::StrCat("SELECT (SELECT count(*) FROM pragma_table_info("
                                            "'lm_job_rows', ?2) WHERE name = 'vanished') FROM ",
                                            place.schema, ".lm_jobs WHERE name = ?1")));
    ASSIGN_OR_RETURN(const bool found, find.Bind(1, job).Bind(2, name).Step());
    if (!found) continue;
    place.vanishes = find.Integer(0) > 0;
    return place;
  }
  return absl::NotFoundError(
      absl::StrCat("there is no job named '", job, "': lm_jobs of no database has it"));
}

class JobDiffCursor : public TableCursor {
 public:
  enum Column { kId, kA, kB, kSame, kStateA, kStateB, kTokensA, kTokensB, kNumColumns };

  using TableCursor::TableCursor;

  absl::Status Filter(const TableArguments& args) override {
    rowid_ = 0;
    ASSIGN_OR_RETURN(const std::optional<std::string> a, args.Text(0));
    ASSIGN_OR_RETURN(const std::optional<std::string> b, args.Text(1));
    if (!a.has_value() || !b.has_value()) {
      return absl::InvalidArgumentError(a.has_value() ? "job_b is NULL" : "job_a is NULL");
    }
    sqlite3* db = connection().db();
    ASSIGN_OR_RETURN(const JobPlace in_a, FindPlace(db, *a));
    ASSIGN_OR_RETURN(const JobPlace in_b, FindPlace(db, *b));
    ASSIGN_OR_RETURN(rows_, Statement::Prepare(
                                db, absl::StrReplaceAll(kRows, {{"{a}", in_a.Rows()},
                                                                {"{b}", in_b.Rows()},
                                                                {"{given_a}", in_a.Given("a")},
                                                                {"{given_b}", in_b.Given("b")}})));
    rows_.Bind(1, *a).Bind(2, *b);
    return Advance();
  }

  bool AtEnd() const override { return !has_row_; }

  absl::Status Next() override {
    ++rowid_;
    return Advance();
  }

  absl::Status Value(int column, sqlite3_context* context) override {
    sqlite3_result_value(context, rows_.Value(column));
    return absl::OkStatus();
  }

  int64_t rowid() const override { return rowid_; }

 private:
  absl::Status Advance() {
    has_row_ = false;
    ASSIGN_OR_RETURN(has_row_, rows_.Step());
    return absl::OkStatus();
  }

  Statement rows_;
  bool has_row_ = false;
  int64_t rowid_ = 0;
};

constexpr TableFunctionSpec kJobDiffSpec = {
    .name = "lm_job_diff",
    .columns =
        "id, a TEXT, b TEXT, same INTEGER, state_a TEXT, state_b TEXT, tokens_a INTEGER, "
        "tokens_b INTEGER",
    .num_columns = JobDiffCursor::kNumColumns,
    .arguments = {"job_a", "job_b"},
    .required = 2,
    .missing = "the names of two jobs are wanted: lm_job_diff(job_a, job_b)",
    .open = &MakeCursor<JobDiffCursor>,
};

}  // namespace

int RegisterJobDiff(const std::shared_ptr<Connection>& connection) {
  return RegisterTableFunction(connection, &kJobDiffSpec);
}

}  // namespace lm
