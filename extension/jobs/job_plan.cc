#include "extension/jobs/job_plan.h"

#include <optional>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "extension/host/given_statement.h"
#include "extension/jobs/submitted_rows.h"

namespace lm {
namespace {

constexpr char kQuery[] = "the job's query:";

absl::Status SameId(int64_t row, const OwnedValue& id) {
  const auto* shown = reinterpret_cast<const char*>(sqlite3_value_text(id.get()));
  return absl::InvalidArgumentError(absl::StrCat(
      "row ", row, " has the id ", shown != nullptr ? shown : "", ", as an earlier one"));
}

void BindGiven(Statement& statement, int position, const OwnedValue& value) {
  if (value != nullptr) {
    statement.Bind(position, value.get());
  } else {
    statement.BindNull(position);
  }
}

}  // namespace

absl::StatusOr<Statement> JobPlan::Prepare(absl::string_view sql) const {
  return Statement::Prepare(database_.db(), database_.Sql(sql));
}

absl::StatusOr<bool> JobPlan::IsPlanned(absl::string_view model, bool any_model) const {
  ASSIGN_OR_RETURN(Statement planned, Prepare(absl::StrCat("SELECT ", kJobColumns,
                                                           " FROM {db}.lm_jobs WHERE name = ?")));
  ASSIGN_OR_RETURN(const bool there, planned.Bind(1, job_.name).Step());
  if (!there) return absl::NotFoundError(absl::StrCat("job '", job_.name, "' was deleted"));
  ASSIGN_OR_RETURN(const Job now, JobOf(planned));
  RETURN_IF_ERROR(CheckSameJob(job_, now));
  if (!now.total.has_value()) return false;
  if (*now.total > 0) RETURN_IF_ERROR(CheckRows(*now.total));
  if (any_model || !now.model.has_value() || *now.model == model) return true;
  return absl::FailedPreconditionError(absl::StrCat(
      "job '", job_.name, "' was begun with the model ", *now.model, ", this connection's is ",
      model, " (UPDATE lm_jobs SET model = NULL to go on with another)"));
}

// Tables that an earlier version made let a job be renamed, and its rows keep the old name.
absl::Status JobPlan::CheckRows(int64_t total) const {
  ASSIGN_OR_RETURN(Statement any, Prepare("SELECT 1 FROM {db}.lm_job_rows WHERE job = ? LIMIT 1"));
  ASSIGN_OR_RETURN(const bool has, any.Bind(1, job_.name).Step());
  if (has) return absl::OkStatus();
  ASSIGN_OR_RETURN(Statement lost, Prepare("SELECT job FROM {db}.lm_job_rows WHERE job NOT IN "
                                           "(SELECT name FROM {db}.lm_jobs) LIMIT 1"));
  ASSIGN_OR_RETURN(const bool found, lost.Step());
  if (!found) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string name, lost.Text(0));
  return absl::FailedPreconditionError(
      absl::StrCat("job '", job_.name, "' has ", total,
                   " rows and lm_job_rows none of them, but "
                   "rows of '",
                   name,
                   "', which is no job: if it had that name, UPDATE lm_job_rows "
                   "SET job = '",
                   job_.name, "' WHERE job = '", name,
                   "' gives them back, else "
                   "DELETE them"));
}

absl::StatusOr<Statement> JobPlan::PrepareQuery() const {
  ASSIGN_OR_RETURN(Statement query, PrepareGivenSelect(database_.db(), job_.query));
  const int columns = sqlite3_column_count(query.get());
  if (columns < 2 || columns > 3) {
    return absl::InvalidArgumentError(
        absl::StrCat("must have the columns id, prompt and perhaps system, got ", columns));
  }
  return query;
}

absl::StatusOr<JobPlan::Given> JobPlan::GivenBy(const Statement& row) {
  Given given;
  OwnedValue* const values[] = {&given.id, &given.prompt, &given.system};
  const int columns = sqlite3_column_count(row.get());
  for (int column = 0; column < columns; ++column) {
    values[column]->reset(sqlite3_value_dup(row.Value(column)));
    if (*values[column] == nullptr) return absl::ResourceExhaustedError("out of memory");
  }
  return given;
}

absl::Status JobPlan::EachRow(
    absl::FunctionRef<absl::Status(int64_t number, Statement& row)> take) const {
  ASSIGN_OR_RETURN(Statement query, PrepareQuery());
  for (int64_t number = 1;; ++number) {
    ASSIGN_OR_RETURN(const bool row, query.Step());
    if (!row) return absl::OkStatus();
    if (query.IsNull(0)) {
      return absl::InvalidArgumentError(absl::StrCat("row ", number, " has the id NULL"));
    }
    RETURN_IF_ERROR(take(number, query));
  }
}

absl::Status JobPlan::ReadRows(std::vector<Given>* all) const {
  return InWordsOf(kQuery, EachRow([&](int64_t, Statement& row) -> absl::Status {
                     ASSIGN_OR_RETURN(Given given, GivenBy(row));
                     all->push_back(std::move(given));
                     return absl::OkStatus();
                   }));
}

absl::Status JobPlan::Insert(Statement& insert, int64_t number, const Given& given) const {
  BindGiven(insert, 1, given.id);
  BindGiven(insert, 2, given.prompt);
  BindGiven(insert, 3, given.system);
  absl::Status inserted = insert.Run();
  const bool twice = sqlite3_extended_errcode(database_.db()) == SQLITE_CONSTRAINT_UNIQUE;
  return inserted.ok() || !twice ? inserted : SameId(number, given.id);
}

absl::Status JobPlan::Stage() const {
  sqlite3* db = database_.db();
  RETURN_IF_ERROR(Execute(db, "CREATE TEMP TABLE lm_plan(id UNIQUE, prompt TEXT, system TEXT)"));
  ASSIGN_OR_RETURN(Statement insert,
                   Statement::Prepare(db, "INSERT INTO temp.lm_plan VALUES (?, ?, ?)"));
  RETURN_IF_ERROR(Execute(db, "BEGIN"));
  RETURN_IF_ERROR(InWordsOf(kQuery, EachRow([&](int64_t number, Statement& row) -> absl::Status {
                              ASSIGN_OR_RETURN(const Given given, GivenBy(row));
                              return Insert(insert, number, given);
                            })));
  return Execute(db, "COMMIT");
}

// What a network's model is called by says where it is, and that may change.
absl::Status JobPlan::CheckModelFile(absl::string_view model, absl::string_view digest) const {
  if (digest.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(Statement answered,
                   Prepare("SELECT model FROM (SELECT model FROM {db}.lm_job_rows WHERE job = ?1 "
                           "AND state = 'done' AND vanished IS NULL LIMIT 100) WHERE EXISTS("
                           "SELECT 1 FROM {db}.lm_jobs WHERE name = ?1 AND model IS NOT NULL) "
                           "AND model <> ?2 AND substr(model, 1, 8) <> 'network:' LIMIT 1"));
  ASSIGN_OR_RETURN(const bool found, answered.Bind(1, job_.name).Bind(2, digest).Step());
  if (!found) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string other, answered.Text(0));
  return absl::FailedPreconditionError(absl::StrCat(
      "job '", job_.name, "' was begun with another file of the model ", model,
      ", or other options of it (lora, chat_template): its answers are of one with the digest ",
      other, ", this connection's has ", digest,
      " (UPDATE lm_jobs SET model = NULL to go on with it; with "
      "'{\"refresh\":true}' it answers all rows)"));
}

absl::Status JobPlan::Make(absl::string_view model, absl::string_view digest) {
  ASSIGN_OR_RETURN(const bool planned, IsPlanned(model, /*any_model=*/false));
  if (planned) return CheckModelFile(model, digest);
  // Its query was not looked at (JobStore::Prepare).
  if (job_.total.has_value()) return JobWasReplaced(job_);
  std::vector<Given> rows;
  RETURN_IF_ERROR(database_.own() ? Stage() : ReadRows(&rows));
  absl::Status status = database_.Transact([&]() -> absl::Status {
    ASSIGN_OR_RETURN(const bool by_another, IsPlanned(model, /*any_model=*/false));
    if (by_another) return absl::OkStatus();
    // A job of that name that was replaced.
    ASSIGN_OR_RETURN(Statement clear, Prepare("DELETE FROM {db}.lm_job_rows WHERE job = ?"));
    RETURN_IF_ERROR(clear.Bind(1, job_.name).Run());
    RETURN_IF_ERROR(SubmittedRows(&database_).Forget(job_.name));
    if (database_.own()) {
      ASSIGN_OR_RETURN(Statement copy,
                       Prepare("INSERT INTO {db}.lm_job_rows(job, id, prompt, system) "
                               "SELECT ?, * FROM temp.lm_plan ORDER BY rowid"));
      RETURN_IF_ERROR(copy.Bind(1, job_.name).Run());
    } else {
      ASSIGN_OR_RETURN(Statement insert,
                       Prepare("INSERT INTO {db}.lm_job_rows(id, prompt, system, job) "
                               "VALUES (?1, ?2, ?3, ?4)"));
      insert.Bind(4, job_.name);
      int64_t number = 0;
      for (const Given& row : rows) {
        RETURN_IF_ERROR(InWordsOf(kQuery, Insert(insert, ++number, row)));
      }
    }
    ASSIGN_OR_RETURN(Statement settle,
                     Prepare("UPDATE {db}.lm_jobs SET model = ?2, total = (SELECT count(*) "
                             "FROM {db}.lm_job_rows WHERE job = ?1), "
                             "began = strftime('%Y-%m-%d %H:%M:%f', 'now'), ended = NULL, "
                             "status = NULL WHERE name = ?1"));
    return settle.Bind(1, job_.name).Bind(2, model).Run();
  });
  if (database_.own()) status.Update(Execute(database_.db(), "DROP TABLE temp.lm_plan"));
  return status;
}

// One refresh on its way.
struct JobPlan::Merge {
  const Refreshed& now;
  JobChanges changes = {};
  std::unordered_set<int64_t> given = {};  // the numbers of the rows that the query has given
  Statement find = {}, join = {}, update = {};
};

absl::StatusOr<JobChanges> JobPlan::Refresh(const Refreshed& now) {
  RETURN_IF_ERROR(IsPlanned(now.model, now.any_model).status());
  if (database_.own()) RETURN_IF_ERROR(Stage());
  Merge merge{now};
  absl::Status status = now.transact([&]() -> absl::Status {
    merge.changes = {};
    merge.given.clear();
    RETURN_IF_ERROR(IsPlanned(now.model, now.any_model).status());
    RETURN_IF_ERROR(MergeAll(merge));
    RETURN_IF_ERROR(MarkVanished(merge));
    ASSIGN_OR_RETURN(Statement settle,
                     Prepare("UPDATE {db}.lm_jobs SET model = ?2, total = ?3, began = coalesce("
                             "began, strftime('%Y-%m-%d %H:%M:%f', 'now')), ended = CASE WHEN ?4 "
                             "THEN ended END WHERE name = ?1"));
    settle.Bind(1, job_.name).Bind(2, now.model);
    settle.Bind(3, static_cast<int64_t>(merge.given.size()));
    return settle.Bind(4, int64_t{merge.changes.joined + merge.changes.changed == 0}).Run();
  });
  if (database_.own()) status.Update(Execute(database_.db(), "DROP TABLE temp.lm_plan"));
  RETURN_IF_ERROR(status);
  return merge.changes;
}

absl::Status JobPlan::MergeAll(Merge& merge) const {
  ASSIGN_OR_RETURN(merge.find,
                   Prepare("SELECT number, state, prompt IS NOT ?3 OR system IS NOT ?4, "
                           "prompt_version, model, vanished IS NOT NULL FROM {db}.lm_job_rows "
                           "WHERE job = ?1 AND id = ?2"));
  ASSIGN_OR_RETURN(merge.join, Prepare("INSERT INTO {db}.lm_job_rows(job, id, prompt, system) "
                                       "VALUES (?1, ?2, ?3, ?4)"));
  ASSIGN_OR_RETURN(merge.update,
                   Prepare("UPDATE {db}.lm_job_rows SET prompt = ?2, system = ?3, state = ?4, "
                           "prompt_version = ?5, model = ?6, vanished = NULL, "
                           "worker = CASE WHEN ?4 = state THEN worker END, "
                           "lease = CASE WHEN ?4 = state THEN lease END WHERE number = ?1"));
  int64_t place = 0;
  if (database_.own()) {
    ASSIGN_OR_RETURN(Statement rows, Prepare("SELECT * FROM temp.lm_plan ORDER BY rowid"));
    for (;;) {
      ASSIGN_OR_RETURN(const bool row, rows.Step());
      if (!row) return absl::OkStatus();
      ASSIGN_OR_RETURN(const Given given, GivenBy(rows));
      RETURN_IF_ERROR(MergeRow(merge, ++place, given));
    }
  }
  std::vector<Given> all;
  RETURN_IF_ERROR(ReadRows(&all));
  for (const Given& given : all) {
    RETURN_IF_ERROR(InWordsOf(kQuery, MergeRow(merge, ++place, given)));
  }
  return absl::OkStatus();
}

absl::Status JobPlan::MergeRow(Merge& merge, int64_t place, const Given& given) const {
  const auto& [id, prompt, system] = given;
  JobRow row;
  row.prompt = TextOf(prompt.get(), "prompt");
  if (system != nullptr) row.system = TextOf(system.get(), "system");
  const JobAsked asked = merge.now.question.Of(row);

  Statement& find = merge.find.Bind(1, job_.name);
  BindGiven(find, 2, id);
  BindGiven(find, 3, prompt);
  BindGiven(find, 4, system);
  ASSIGN_OR_RETURN(const bool known, find.Step());
  if (!known) {
    Statement& join = merge.join.Bind(1, job_.name);
    BindGiven(join, 2, id);
    BindGiven(join, 3, prompt);
    BindGiven(join, 4, system);
    RETURN_IF_ERROR(join.Run());
    merge.given.insert(sqlite3_last_insert_rowid(database_.db()));
    ++merge.changes.joined;
    return absl::OkStatus();
  }
  const int64_t number = find.Integer(0);
  ASSIGN_OR_RETURN(const std::string state, find.Text(1));
  const bool differs = find.Integer(2) != 0, has_version = !find.IsNull(3);
  ASSIGN_OR_RETURN(const std::string version, find.Text(3));
  ASSIGN_OR_RETURN(const std::string model, find.Text(4));
  const bool vanished = find.Integer(5) != 0;
  find.Reset();
  if (!merge.given.insert(number).second) {
    return SameId(place, id);
  }
  const bool answered = state == "done" || state == "failed";
  const bool other_model = !model.empty() && !asked.model.empty() && model != asked.model;
  const bool changed = has_version ? version != asked.version || other_model : differs;
  const bool again = answered ? changed : state == "running" && differs;
  merge.changes.changed += answered && changed;
  const bool learns = answered && !changed && !has_version;  // what it must have been
  if (!differs && !again && !vanished && !learns) return absl::OkStatus();
  Statement& update = merge.update.Bind(1, number);
  BindGiven(update, 2, prompt);
  BindGiven(update, 3, system);
  update.Bind(4, again ? "waiting" : state).BindNull(5).BindNull(6);
  const JobAsked kept = learns ? asked : JobAsked{version, model};
  if (!kept.version.empty()) update.Bind(5, kept.version);
  if (!kept.model.empty()) update.Bind(6, kept.model);
  RETURN_IF_ERROR(update.Run());
  return vanished && state == "done" && !again ? merge.now.take_again(number) : absl::OkStatus();
}

absl::Status JobPlan::MarkVanished(Merge& merge) const {
  // By the index alone: the rows may be long.
  ASSIGN_OR_RETURN(Statement all, Prepare("SELECT number FROM {db}.lm_job_rows WHERE job = ?"));
  ASSIGN_OR_RETURN(Statement mark, Prepare("UPDATE {db}.lm_job_rows SET vanished = "
                                           "strftime('%Y-%m-%d %H:%M:%f', 'now') "
                                           "WHERE number = ? AND vanished IS NULL"));
  std::vector<int64_t> gone;
  all.Bind(1, job_.name);
  for (;;) {
    ASSIGN_OR_RETURN(const bool row, all.Step());
    if (!row) break;
    if (!merge.given.contains(all.Integer(0))) gone.push_back(all.Integer(0));
  }
  for (const int64_t number : gone) {
    RETURN_IF_ERROR(mark.Bind(1, number).Run());
    merge.changes.vanished += sqlite3_changes(database_.db());
  }
  return absl::OkStatus();
}

}  // namespace lm
