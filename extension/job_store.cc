#include "extension/job_store.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/status_macros.h"

namespace lm {
namespace {

constexpr char kSchema[] = R"(
CREATE TABLE IF NOT EXISTS main.lm_jobs(
  name TEXT PRIMARY KEY NOT NULL,
  query TEXT NOT NULL,  -- SELECT id, prompt [, system]: asked once, when the job first runs
  target TEXT,          -- INSERT, UPDATE or DELETE that takes an answer: :id, :value, :error
  system TEXT,          -- the system prompt of rows without one of their own
  options TEXT,         -- as for generate()
  model TEXT,           -- set by lm_run(): the model that the job was begun with
  total INTEGER         -- set by lm_run(): the number of rows
);
CREATE TABLE IF NOT EXISTS main.lm_job_rows(
  number INTEGER PRIMARY KEY,
  job TEXT NOT NULL,
  id NOT NULL,
  prompt TEXT,
  system TEXT,
  state TEXT NOT NULL DEFAULT 'waiting',  -- waiting, running, done, failed
  value TEXT,
  error TEXT,
  finish TEXT,
  tokens_in INTEGER,
  tokens_cached INTEGER,
  tokens_out INTEGER,
  attempts INTEGER NOT NULL DEFAULT 0,
  worker TEXT,    -- who has claimed a running row
  lease INTEGER,  -- and until when, in milliseconds since 1970
  UNIQUE(job, id)
);
CREATE INDEX IF NOT EXISTS main.lm_job_rows_by_state ON lm_job_rows(job, state);
CREATE TRIGGER IF NOT EXISTS main.lm_jobs_delete AFTER DELETE ON lm_jobs
  BEGIN DELETE FROM lm_job_rows WHERE job = old.name; END;
)";

std::optional<std::string> OptionalText(const Statement& row, int column) {
  if (row.IsNull(column)) return std::nullopt;
  return row.Text(column);
}

absl::Status Prefixed(absl::string_view prefix, const absl::Status& status) {
  if (status.ok() || absl::IsCancelled(status) || absl::IsUnavailable(status)) return status;
  return absl::Status(status.code(), absl::StrCat(prefix, ": ", status.message()));
}

// Refuses what follows a statement in its text, comments excepted.
absl::Status CheckSingle(sqlite3* db, const Statement& statement, absl::string_view what) {
  absl::StatusOr<Statement> next = Statement::Prepare(db, statement.tail());
  const bool more = next.ok() || next.status().message() != "there is no statement";
  if (!more) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(what, " must be a single statement"));
}

// The first word of a statement, in capitals.
std::string FirstWord(absl::string_view sql) {
  for (;;) {
    sql = absl::StripLeadingAsciiWhitespace(sql);
    absl::string_view end;
    if (sql.substr(0, 2) == "--") {
      end = "\n";
    } else if (sql.substr(0, 2) == "/*") {
      end = "*/";
    } else {
      break;
    }
    const size_t at = sql.find(end, 2);
    sql.remove_prefix(at == absl::string_view::npos ? sql.size() : at + end.size());
  }
  size_t length = 0;
  while (length < sql.size() && absl::ascii_isalpha(sql[length])) ++length;
  return absl::AsciiStrToUpper(sql.substr(0, length));
}

}  // namespace

absl::Status CreateJobTables(sqlite3* db) { return Execute(db, kSchema); }

absl::StatusOr<std::unique_ptr<JobStore>> JobStore::Open(JobDatabase* database,
                                                         absl::string_view name) {
  std::unique_ptr<JobStore> store(new JobStore(database));
  RETURN_IF_ERROR(store->Load(name));
  RETURN_IF_ERROR(Prefixed("the job's target", store->PrepareTarget()));
  return store;
}

absl::Status JobStore::Load(absl::string_view name) {
  sqlite3* db = database_.db();
  ASSIGN_OR_RETURN(
      Statement exists,
      Statement::Prepare(db, "SELECT 1 FROM main.sqlite_master WHERE lower(name) = 'lm_jobs'"));
  ASSIGN_OR_RETURN(const bool has_table, exists.Step());
  exists.Reset();
  std::vector<std::string> names;
  if (has_table) {
    ASSIGN_OR_RETURN(
        Statement jobs,
        Statement::Prepare(db, "SELECT name, query, target, system, options FROM main.lm_jobs"));
    for (;;) {
      ASSIGN_OR_RETURN(const bool row, jobs.Step());
      if (!row) break;
      names.push_back(jobs.Text(0));
      if (names.back() != name) continue;
      job_ = {names.back(), jobs.Text(1), OptionalText(jobs, 2), OptionalText(jobs, 3),
              OptionalText(jobs, 4)};
      return absl::OkStatus();
    }
  }
  return absl::NotFoundError(absl::StrCat(
      "there is no job named '", name, "'",
      names.empty() ? ": INSERT INTO lm_jobs(name, query, target) makes one"
                    : absl::StrCat("; lm_jobs has '", absl::StrJoin(names, "', '"), "'")));
}

// Only what changes rows: a job comes with the database file, and is no way to more than that.
absl::Status JobStore::PrepareTarget() {
  if (!job_.target.has_value()) return absl::OkStatus();
  sqlite3* db = database_.db();
  const std::string word = FirstWord(*job_.target);
  bool changes = false;
  for (absl::string_view known : {"INSERT", "UPDATE", "DELETE", "REPLACE", "WITH"}) {
    changes |= word == known;
  }
  if (!changes) {
    return absl::InvalidArgumentError(
        absl::StrCat("must be an INSERT, UPDATE or DELETE, got '", word, "'"));
  }
  ASSIGN_OR_RETURN(target_, Statement::Prepare(db, *job_.target));
  if (sqlite3_stmt_readonly(target_.get()) != 0) {
    return absl::InvalidArgumentError("changes nothing");
  }
  RETURN_IF_ERROR(CheckSingle(db, target_, "it"));
  for (int i = 1; i <= sqlite3_bind_parameter_count(target_.get()); ++i) {
    const char* name = sqlite3_bind_parameter_name(target_.get(), i);
    const absl::string_view known = name != nullptr ? name + 1 : "";
    if (known == "id" || known == "value" || known == "error") continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "has the parameter ", name != nullptr ? name : "?", "; :id, :value and :error are known"));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> JobStore::IsPlanned(absl::string_view model) {
  ASSIGN_OR_RETURN(
      Statement planned,
      Statement::Prepare(database_.db(), "SELECT total, model FROM main.lm_jobs WHERE name = ?"));
  ASSIGN_OR_RETURN(const bool there, planned.Bind(1, job_.name).Step());
  if (!there) return absl::NotFoundError(absl::StrCat("job '", job_.name, "' was deleted"));
  if (planned.IsNull(0)) return false;
  if (planned.IsNull(1) || planned.Text(1) == model) return true;
  return absl::FailedPreconditionError(absl::StrCat(
      "job '", job_.name, "' was begun with the model ", planned.Text(1), ", this connection's is ",
      model, " (UPDATE lm_jobs SET model = NULL to go on with another)"));
}

absl::Status JobStore::ReadQuery(Statement* insert) {
  sqlite3* db = database_.db();
  ASSIGN_OR_RETURN(Statement query, Statement::Prepare(db, job_.query));
  const int columns = sqlite3_column_count(query.get());
  if (sqlite3_stmt_readonly(query.get()) == 0 || columns == 0) {
    return absl::InvalidArgumentError("must be a SELECT");
  }
  if (columns < 2 || columns > 3) {
    return absl::InvalidArgumentError(
        absl::StrCat("must have the columns id, prompt and perhaps system, got ", columns));
  }
  RETURN_IF_ERROR(CheckSingle(db, query, "it"));
  if (sqlite3_bind_parameter_count(query.get()) > 0) {
    return absl::InvalidArgumentError("has a parameter, which nobody binds");
  }
  for (int64_t number = 1;; ++number) {
    ASSIGN_OR_RETURN(const bool row, query.Step());
    if (!row) return absl::OkStatus();
    if (query.IsNull(0)) {
      return absl::InvalidArgumentError(absl::StrCat("row ", number, " has the id NULL"));
    }
    for (int column = 0; column < columns; ++column) insert->Bind(column + 1, query.Value(column));
    absl::Status inserted = insert->Run();
    if (sqlite3_extended_errcode(db) == SQLITE_CONSTRAINT_UNIQUE) {
      return absl::InvalidArgumentError(
          absl::StrCat("row ", number, " has the id ", query.Text(0), ", as an earlier one"));
    }
    RETURN_IF_ERROR(inserted);
  }
}

absl::Status JobStore::Plan(absl::string_view model) {
  sqlite3* db = database_.db();
  ASSIGN_OR_RETURN(const bool planned, IsPlanned(model));
  if (planned) return absl::OkStatus();
  if (database_.own()) {
    // First to a table that nobody else sees: the query may take its time.
    RETURN_IF_ERROR(Execute(db, "CREATE TEMP TABLE lm_plan(id UNIQUE, prompt TEXT, system TEXT)"));
    ASSIGN_OR_RETURN(Statement insert,
                     Statement::Prepare(db, "INSERT INTO temp.lm_plan VALUES (?, ?, ?)"));
    RETURN_IF_ERROR(Execute(db, "BEGIN"));
    absl::Status read = ReadQuery(&insert);
    RETURN_IF_ERROR(Prefixed("the job's query", read));
    RETURN_IF_ERROR(Execute(db, "COMMIT"));
  }
  absl::Status status = database_.Transact([&]() -> absl::Status {
    ASSIGN_OR_RETURN(const bool by_another, IsPlanned(model));
    if (by_another) return absl::OkStatus();
    // A job of that name that was replaced.
    ASSIGN_OR_RETURN(Statement clear,
                     Statement::Prepare(db, "DELETE FROM main.lm_job_rows WHERE job = ?"));
    RETURN_IF_ERROR(clear.Bind(1, job_.name).Run());
    if (database_.own()) {
      ASSIGN_OR_RETURN(Statement copy,
                       Statement::Prepare(db,
                                          "INSERT INTO main.lm_job_rows(job, id, prompt, system) "
                                          "SELECT ?, * FROM temp.lm_plan ORDER BY rowid"));
      RETURN_IF_ERROR(copy.Bind(1, job_.name).Run());
    } else {
      ASSIGN_OR_RETURN(Statement insert,
                       Statement::Prepare(db,
                                          "INSERT INTO main.lm_job_rows(id, prompt, system, job) "
                                          "VALUES (?1, ?2, ?3, ?4)"));
      RETURN_IF_ERROR(Prefixed("the job's query", ReadQuery(&insert.Bind(4, job_.name))));
    }
    ASSIGN_OR_RETURN(
        Statement settle,
        Statement::Prepare(db,
                           "UPDATE main.lm_jobs SET model = ?2, total = (SELECT count(*) "
                           "FROM main.lm_job_rows WHERE job = ?1) WHERE name = ?1"));
    return settle.Bind(1, job_.name).Bind(2, model).Run();
  });
  if (database_.own()) status.Update(Execute(db, "DROP TABLE temp.lm_plan"));
  return status;
}

absl::StatusOr<Statement*> JobStore::Prepared(Statement* statement, const char* sql) {
  if (!statement->prepared()) {
    ASSIGN_OR_RETURN(*statement, Statement::Prepare(database_.db(), sql));
  }
  return statement;
}

absl::Status JobStore::Claim(int64_t most, absl::Time lease, std::vector<JobRow>* rows) {
  const int64_t until = absl::ToUnixMillis(lease);
  ASSIGN_OR_RETURN(Statement * renew,
                   Prepared(&renew_,
                            "UPDATE main.lm_job_rows SET lease = ?3 "
                            "WHERE job = ?1 AND state = 'running' AND worker = ?2"));
  RETURN_IF_ERROR(renew->Bind(1, job_.name).Bind(2, worker_.name()).Bind(3, until).Run());
  ASSIGN_OR_RETURN(Statement * waiting,
                   Prepared(&select_waiting_,
                            "SELECT number, prompt, system FROM main.lm_job_rows "
                            "WHERE job = ? AND state = 'waiting' ORDER BY number LIMIT ?"));
  waiting->Bind(1, job_.name).Bind(2, most);
  const size_t first = rows->size();
  for (;;) {
    ASSIGN_OR_RETURN(const bool row, waiting->Step());
    if (!row) break;
    rows->push_back({waiting->Integer(0), waiting->CheckedText(1, "prompt"),
                     waiting->CheckedText(2, "system")});
  }
  ASSIGN_OR_RETURN(Statement * claim,
                   Prepared(&claim_,
                            "UPDATE main.lm_job_rows SET state = 'running', worker = ?2, "
                            "lease = ?3, attempts = attempts + 1 WHERE number = ?1"));
  for (size_t i = first; i < rows->size(); ++i) {
    claim->Bind(1, (*rows)[i].number).Bind(2, worker_.name()).Bind(3, until);
    RETURN_IF_ERROR(claim->Run());
  }
  return absl::OkStatus();
}

void JobStore::BindTarget(sqlite3_value* id, const JobAnswer& answer) {
  auto position = [this](absl::string_view name) {
    for (char mark : {':', '@', '$'}) {
      const std::string full = absl::StrCat(std::string(1, mark), name);
      const int found = sqlite3_bind_parameter_index(target_.get(), full.c_str());
      if (found > 0) return found;
    }
    return 0;
  };
  auto bind = [&](absl::string_view name, const std::optional<std::string>& text) {
    if (text.has_value()) {
      target_.Bind(position(name), *text);
    } else {
      target_.BindNull(position(name));
    }
  };
  target_.Bind(position("id"), id);
  bind("value", answer.value);
  const absl::Status& status = answer.generation.status;
  bind("error", status.ok() ? std::nullopt : std::optional<std::string>(status.message()));
}

absl::StatusOr<JobStore::Outcome> JobStore::Complete(int64_t number, JobAnswer answer) {
  ASSIGN_OR_RETURN(Statement * owned,
                   Prepared(&select_owned_,
                            "SELECT id FROM main.lm_job_rows "
                            "WHERE number = ? AND job = ? AND worker = ? AND state = 'running'"));
  owned->Bind(1, number).Bind(2, job_.name).Bind(3, worker_.name());
  ASSIGN_OR_RETURN(const bool mine, owned->Step());
  if (!mine) return Outcome::kLost;
  const bool apply = target_.prepared() && answer.store;
  if (apply) BindTarget(owned->Value(0), answer);
  owned->Reset();
  if (apply) {
    absl::Status applied = Prefixed("the job's target", target_.Run());
    // One that rolled the transaction back has undone more than this row.
    const bool undone = sqlite3_get_autocommit(database_.db()) != 0;
    if (!applied.ok() && (undone || !absl::IsInvalidArgument(applied))) return applied;
    if (!applied.ok()) answer.generation.status = std::move(applied);
  }
  ASSIGN_OR_RETURN(Statement * complete,
                   Prepared(&complete_,
                            "UPDATE main.lm_job_rows SET state = ?2, value = ?3, error = ?4, "
                            "finish = ?5, tokens_in = ?6, tokens_cached = ?7, tokens_out = ?8, "
                            "worker = NULL, lease = NULL WHERE number = ?1"));
  const Generation& generation = answer.generation;
  const bool ok = generation.status.ok();
  complete->Bind(1, number).Bind(2, ok ? "done" : "failed");
  complete->BindNull(3).BindNull(4).BindNull(5);
  if (answer.value.has_value()) complete->Bind(3, *answer.value);
  if (!ok) complete->Bind(4, generation.status.message());
  if (!answer.null_prompt) {
    complete->Bind(5, FinishReasonName(ok ? generation.finish : FinishReason::kError));
  }
  complete->Bind(6, int64_t{generation.tokens_in});
  complete->Bind(7, int64_t{generation.tokens_cached});
  complete->Bind(8, int64_t{generation.tokens_out});
  RETURN_IF_ERROR(complete->Run());
  return ok ? Outcome::kDone : Outcome::kFailed;
}

absl::Status JobStore::Release() {
  ASSIGN_OR_RETURN(Statement release,
                   Statement::Prepare(database_.db(),
                                      "UPDATE main.lm_job_rows SET state = 'waiting', "
                                      "worker = NULL, lease = NULL "
                                      "WHERE job = ? AND state = 'running' AND worker = ?"));
  return release.Bind(1, job_.name).Bind(2, worker_.name()).Run();
}

absl::Status JobStore::Recover(absl::Time now) {
  ASSIGN_OR_RETURN(Statement others,
                   Statement::Prepare(database_.db(),
                                      "SELECT worker, max(lease) FROM main.lm_job_rows WHERE "
                                      "job = ? AND state = 'running' AND worker IS NOT ? "
                                      "GROUP BY worker"));
  ASSIGN_OR_RETURN(Statement give_back,
                   Statement::Prepare(database_.db(),
                                      "UPDATE main.lm_job_rows SET state = 'waiting', "
                                      "worker = NULL, lease = NULL "
                                      "WHERE job = ? AND state = 'running' AND worker IS ?"));
  std::vector<std::string> gone;
  others.Bind(1, job_.name).Bind(2, worker_.name());
  for (;;) {
    ASSIGN_OR_RETURN(const bool row, others.Step());
    if (!row) break;
    if (others.Integer(1) < absl::ToUnixMillis(now) || JobWorker::IsGone(others.Text(0))) {
      gone.push_back(others.Text(0));
    }
  }
  for (const std::string& worker : gone) {
    RETURN_IF_ERROR(give_back.Bind(1, job_.name).Bind(2, worker).Run());
  }
  return absl::OkStatus();
}

absl::Status JobStore::Retry() {
  ASSIGN_OR_RETURN(Statement retry,
                   Statement::Prepare(database_.db(),
                                      "UPDATE main.lm_job_rows SET state = 'waiting' "
                                      "WHERE job = ? AND state = 'failed'"));
  return retry.Bind(1, job_.name).Run();
}

absl::StatusOr<JobCounts> JobStore::Counts() {
  ASSIGN_OR_RETURN(Statement * counts, Prepared(&counts_,
                                                "SELECT state, count(*) FROM main.lm_job_rows "
                                                "WHERE job = ? GROUP BY state"));
  counts->Bind(1, job_.name);
  JobCounts result;
  for (;;) {
    ASSIGN_OR_RETURN(const bool row, counts->Step());
    if (!row) return result;
    const std::string state = counts->Text(0);
    int64_t& count = state == "done"      ? result.done
                     : state == "failed"  ? result.failed
                     : state == "running" ? result.running
                                          : result.waiting;
    count = counts->Integer(1);
  }
}

absl::StatusOr<std::string> JobStore::LastFailure() {
  ASSIGN_OR_RETURN(Statement failure,
                   Statement::Prepare(database_.db(),
                                      "SELECT id, error FROM main.lm_job_rows WHERE "
                                      "job = ? AND state = 'failed' ORDER BY number DESC LIMIT 1"));
  ASSIGN_OR_RETURN(const bool row, failure.Bind(1, job_.name).Step());
  return row ? absl::StrCat("id ", failure.Text(0), ": ", failure.Text(1)) : "";
}

}  // namespace lm
