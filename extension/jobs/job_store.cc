#include "extension/jobs/job_store.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/status_macros.h"
#include "engine/base/utf8.h"
#include "extension/batch/row_prompt.h"
#include "extension/connection/own_options.h"
#include "extension/host/sqlite_value.h"

namespace lm {
namespace {

constexpr absl::Duration kLongWait = absl::Milliseconds(100);  // for a lock

absl::StatusOr<std::optional<std::string>> OptionalText(const Statement& row, int column) {
  if (row.IsNull(column)) return std::nullopt;
  return row.Text(column);
}

// At most `bytes` of a text, whole characters.
absl::string_view Head(absl::string_view text, size_t bytes) {
  return text.substr(0, ValidUtf8Prefix(text.substr(0, bytes)));
}

}  // namespace

absl::Status JobStore::Plan(absl::string_view model, absl::string_view digest) {
  RETURN_IF_ERROR(JobPlan(&database_, &job_).Make(model, digest));
  return SetBegun();
}

absl::StatusOr<JobChanges> JobStore::Refresh(const JobQuestion& question, const std::string& model,
                                             bool any_model) {
  ASSIGN_OR_RETURN(
      JobChanges changes,
      JobPlan(&database_, &job_)
          .Refresh({.question = question,
                    .model = model,
                    .any_model = any_model,
                    .transact =
                        [this](absl::FunctionRef<absl::Status()> body) { return Transact(body); },
                    .take_again = [this](int64_t number) { return TakeAgain(number); }}));
  RETURN_IF_ERROR(SetBegun());
  return changes;
}

absl::Status JobStore::SetBegun() {
  ASSIGN_OR_RETURN(Statement began, Make("SELECT began FROM {db}.lm_jobs WHERE name = ?"));
  ASSIGN_OR_RETURN(const bool there, began.Bind(1, job_.name).Step());
  if (there) {
    ASSIGN_OR_RETURN(began_, OptionalText(began, 0));
  }
  begun_ = true;
  return absl::OkStatus();
}

absl::Status JobStore::End(bool over, absl::string_view status, bool anew) {
  RETURN_IF_ERROR(CheckThere());
  ASSIGN_OR_RETURN(Statement end,
                   Make("UPDATE {db}.lm_jobs SET ended = CASE WHEN ?2 THEN "
                        "strftime('%Y-%m-%d %H:%M:%f', 'now') END, status = ?3 WHERE name = ?1 "
                        "AND (NOT ?4 OR ended IS NULL)"));
  end.Bind(1, job_.name).Bind(2, int64_t{over}).Bind(3, status).Bind(4, int64_t{anew});
  return end.Run();
}

absl::Status JobStore::EndIfOver(bool anew) {
  if (!begun_) return absl::OkStatus();
  // The first that is found will do: to count all takes long where there are many.
  ASSIGN_OR_RETURN(Statement * left,
                   Prepared(&select_left_,
                            "SELECT 1 FROM {db}.lm_job_rows WHERE job = ? AND "
                            "state IN ('waiting', 'running') AND vanished IS NULL LIMIT 1"));
  ASSIGN_OR_RETURN(const bool any, left->Bind(1, job_.name).Step());
  left->Reset();
  if (any) return absl::OkStatus();
  ASSIGN_OR_RETURN(const JobCounts counts, Counts());
  if (counts.done + counts.failed != counts.total()) return absl::OkStatus();
  return End(/*over=*/true, "done", anew);
}

absl::Status JobStore::Conclude(bool anew) {
  return database_.Transact([&]() -> absl::Status {
    ASSIGN_OR_RETURN(const JobCounts counts, Counts());
    if (counts.submitted > 0) return End(/*over=*/false, submitted_.Told(counts));
    const int64_t left = counts.waiting + counts.running;
    if (left == 0) return EndIfOver(anew);
    if (counts.waiting == 0) {
      return End(/*over=*/false, absl::StrCat("stopped: another run works on the ", left, " of ",
                                              counts.total(), " rows that are left"));
    }
    return End(/*over=*/false,
               absl::StrCat("stopped: rows were added, or set to wait again, while it ran; ", left,
                            " of ", counts.total(), " rows are left for a later run"));
  });
}

absl::StatusOr<std::unique_ptr<JobStore>> JobStore::Open(JobDatabase* database,
                                                         absl::string_view name) {
  std::unique_ptr<JobStore> store(new JobStore(database));
  RETURN_IF_ERROR(store->Load(name));
  return store;
}

absl::Status JobStore::Prepare(bool asks_again) {
  const bool asks_query = !begun_ || asks_again;
  absl::Status prepared = PrepareStatements(asks_query);
  if (!absl::StrContains(prepared.message(), "unsafe use of virtual table")) return prepared;
  ASSIGN_OR_RETURN(const bool trusted, database_.TrustFullText());
  return trusted ? PrepareStatements(asks_query) : prepared;
}

absl::Status JobStore::PrepareStatements(bool asks_query) {
  // Of what lm_run() itself does to the tables, too.
  for (const char* own : {"SELECT * FROM {db}.lm_jobs, {db}.lm_job_rows",
                          "UPDATE {db}.lm_job_rows SET state = 'running', value = NULL"}) {
    RETURN_IF_ERROR(database_.CheckAllowed(database_.Sql(own)));
  }
  if (asks_query) {
    RETURN_IF_ERROR(
        InWordsOf("the job's query", Reasoned(JobPlan(&database_, &job_).PrepareQuery().status())));
    RETURN_IF_ERROR(InWordsOf("the job's query", database_.CheckAllowed(job_.query)));
  }
  if (job_.target.has_value()) {
    RETURN_IF_ERROR(InWordsOf("the job's target", Reasoned(target_.Prepare(*job_.target))));
  }
  return CheckTexts();
}

// A column of a table may have anything.
absl::Status JobStore::CheckTexts() {
  ASSIGN_OR_RETURN(Statement texts,
                   Make("SELECT system, options FROM {db}.lm_jobs WHERE name = ?"));
  ASSIGN_OR_RETURN(const bool there, texts.Bind(1, job_.name).Step());
  if (!there) return JobWasReplaced(job_);
  ASSIGN_OR_RETURN(const std::optional<std::string> system, texts.CheckedText(0, "lm_jobs.system"));
  RETURN_IF_ERROR(texts.CheckedText(1, "lm_jobs.options").status());
  if (!system.has_value()) return absl::OkStatus();
  return InWordsOf("the job's system prompt:", CheckNotOptions(*system, "system"));
}

absl::Status JobStore::Reasoned(absl::Status status) const {
  if (status.ok() || !database_.own()) return status;
  const absl::string_view message = status.message();
  auto named_after = [message](absl::string_view what) {
    const size_t at = message.rfind(what);
    return at == message.npos ? std::string() : std::string(message.substr(at + what.size()));
  };
  std::string why;
  if (const std::string table = named_after("no such table: "); !table.empty()) {
    ASSIGN_OR_RETURN(why, database_.WhereElse(table));
  } else if (const std::string function = named_after("no such function: "); !function.empty()) {
    ASSIGN_OR_RETURN(why, database_.WhatElse(function));
  } else if (const std::string collation = named_after("no such collation sequence: ");
             !collation.empty()) {
    ASSIGN_OR_RETURN(why, database_.WhichElse(collation));
  }
  if (why.empty()) return status;
  return absl::Status(status.code(), absl::StrCat(message, " (", why, ")"));
}

absl::StatusOr<Statement> JobStore::Make(absl::string_view sql) {
  return Statement::Prepare(database_.db(), database_.Sql(sql));
}

absl::Status JobStore::Load(absl::string_view name) {
  ASSIGN_OR_RETURN(Statement exists,
                   Make("SELECT 1 FROM {db}.sqlite_master WHERE lower(name) = 'lm_jobs'"));
  ASSIGN_OR_RETURN(const bool has_table, exists.Step());
  exists.Reset();
  std::vector<std::string> names;
  if (has_table) {
    absl::StatusOr<Statement> made =
        Make(absl::StrCat("SELECT ", kJobColumns, " FROM {db}.lm_jobs"));
    if (absl::IsInvalidArgument(made.status())) {
      return absl::FailedPreconditionError(
          absl::StrCat("this database's lm_jobs is no table of jobs (", made.status().message(),
                       "): jobs need that name"));
    }
    RETURN_IF_ERROR(made.status());
    Statement jobs = *std::move(made);
    for (;;) {
      ASSIGN_OR_RETURN(const bool row, jobs.Step());
      if (!row) break;
      ASSIGN_OR_RETURN(std::string found, jobs.Text(0));
      names.push_back(std::move(found));
      if (names.back() != name) continue;
      ASSIGN_OR_RETURN(job_, JobOf(jobs));
      begun_ = job_.total.has_value();
      return absl::OkStatus();
    }
  }
  return absl::NotFoundError(absl::StrCat(
      "there is no job named '", name, "'",
      names.empty() ? ": INSERT INTO lm_jobs(name, query, target) makes one"
                    : absl::StrCat("; lm_jobs has '", absl::StrJoin(names, "', '"), "'")));
}

// Its rows have followed.
absl::Status JobStore::FollowName() {
  ASSIGN_OR_RETURN(Statement name,
                   Make("SELECT job FROM {db}.lm_job_rows WHERE state = 'running' AND worker = ?"));
  ASSIGN_OR_RETURN(const bool found, name.Bind(1, worker_.name()).Step());
  if (!found) return absl::OkStatus();
  ASSIGN_OR_RETURN(job_.name, name.Text(0));
  return absl::OkStatus();
}

absl::Status JobStore::CheckThere() {
  ASSIGN_OR_RETURN(Statement * there, Prepared(&there_, absl::StrCat("SELECT ", kJobColumns,
                                                                     ", began FROM {db}.lm_jobs "
                                                                     "WHERE name = ? LIMIT 1")));
  ASSIGN_OR_RETURN(bool found, there->Bind(1, job_.name).Step());
  if (!found) {
    RETURN_IF_ERROR(FollowName());
    there->Reset();
    ASSIGN_OR_RETURN(found, there->Bind(1, job_.name).Step());
  }
  if (!found) {
    return absl::NotFoundError(
        absl::StrCat("job '", job_.name, "' was deleted or renamed while it ran"));
  }
  ASSIGN_OR_RETURN(const Job now, JobOf(*there));
  ASSIGN_OR_RETURN(const std::optional<std::string> began, OptionalText(*there, kNumJobColumns));
  const bool asked_anew =
      begun_ && (!now.total.has_value() || (began_.has_value() && began != began_));
  there->Reset();
  return asked_anew ? JobWasReplaced(job_) : CheckSameJob(job_, now);
}

absl::StatusOr<Statement*> JobStore::Prepared(Statement* statement, absl::string_view sql) {
  if (!statement->prepared()) {
    ASSIGN_OR_RETURN(*statement, Make(sql));
  }
  statement->Reset();  // an error may have left it in the middle
  return statement;
}

absl::Status JobStore::Claim(int64_t most, size_t bytes, absl::Time lease,
                             std::vector<JobRow>* rows) {
  if (!last_.has_value()) {
    ASSIGN_OR_RETURN(Statement last,
                     Make("SELECT coalesce(max(number), 0) FROM {db}.lm_job_rows WHERE job = ?"));
    RETURN_IF_ERROR(last.Bind(1, job_.name).Step().status());
    last_ = last.Integer(0);
  }
  RETURN_IF_ERROR(submitted_.Read(job_.name));
  const int64_t until = absl::ToUnixMillis(lease);
  ASSIGN_OR_RETURN(Statement * renew,
                   Prepared(&renew_,
                            "UPDATE {db}.lm_job_rows SET lease = ?3 "
                            "WHERE job = ?1 AND state = 'running' AND worker = ?2"));
  RETURN_IF_ERROR(renew->Bind(1, job_.name).Bind(2, worker_.name()).Bind(3, until).Run());
  ASSIGN_OR_RETURN(Statement * claim,
                   Prepared(&claim_,
                            "UPDATE {db}.lm_job_rows SET state = 'running', worker = ?2, "
                            "lease = ?3, attempts = attempts + 1 WHERE number = ?1"));
  ASSIGN_OR_RETURN(
      Statement * row,
      Prepared(&select_row_, absl::StrCat("SELECT ", kRowColumns,
                                          " FROM {db}.lm_job_rows WHERE number = ?1 AND job = ?2 "
                                          "AND state = 'waiting' AND vanished IS NULL")));
  size_t taken = 0;
  for (const size_t all = rows->size() + most; rows->size() < all && taken < bytes;) {
    if (ordered_.empty()) RETURN_IF_ERROR(OrderWaiting());
    if (ordered_.empty()) break;
    const int64_t number = ordered_.back();
    ordered_.pop_back();
    if (submitted_.Contains(number)) continue;
    ASSIGN_OR_RETURN(const bool waits, row->Bind(1, number).Bind(2, job_.name).Step());
    if (waits) {
      ASSIGN_OR_RETURN(JobRow found, RowOf(*row));
      taken += found.bytes();
      rows->push_back(std::move(found));
    }
    row->Reset();
    if (!waits) continue;  // another worker has it
    claim->Bind(1, number).Bind(2, worker_.name()).Bind(3, until);
    RETURN_IF_ERROR(claim->Run());
  }
  return absl::OkStatus();
}

absl::StatusOr<JobRow> JobStore::RowOf(const Statement& row) {
  JobRow found{row.Integer(0), row.CheckedText(1, "prompt"), row.CheckedText(2, "system")};
  found.error = row.Text(10).value_or("");
  if (row.IsNull(3)) return found;
  JobAnswer kept;
  Generation& generation = kept.generation;
  ASSIGN_OR_RETURN(generation.text, row.Text(3));
  ASSIGN_OR_RETURN(const std::string finish, row.Text(4));
  for (FinishReason reason : {FinishReason::kStop, FinishReason::kLength, FinishReason::kContext}) {
    if (finish == FinishReasonName(reason)) generation.finish = reason;
  }
  generation.remembered = true;
  generation.tokens_in = static_cast<int32_t>(row.Integer(5));
  generation.tokens_cached = static_cast<int32_t>(row.Integer(6));
  generation.tokens_out = static_cast<int32_t>(row.Integer(7));
  ASSIGN_OR_RETURN(kept.asked.version, row.Text(8));
  ASSIGN_OR_RETURN(kept.asked.model, row.Text(9));
  found.kept = std::move(kept);
  return found;
}

absl::Status JobStore::OrderWaiting() {
  ASSIGN_OR_RETURN(Statement * waiting,
                   Prepared(&select_waiting_,
                            "SELECT number, prompt, system FROM {db}.lm_job_rows WHERE job = ?1 "
                            "AND state = 'waiting' AND number BETWEEN ?2 AND ?3 "
                            "AND vanished IS NULL ORDER BY number"));
  std::vector<SubmittedRows::Range> free = submitted_.Others(*last_);
  std::reverse(free.begin(), free.end());
  bool within = false;  // a range
  std::vector<std::pair<std::string, int64_t>> places;
  for (size_t bytes = 0; places.size() < kMostOrdered && bytes < kMostOrderedBytes;) {
    if (!within) {
      if (free.empty()) break;
      waiting->Bind(1, job_.name).Bind(2, free.back().first).Bind(3, free.back().last);
      free.pop_back();
    }
    ASSIGN_OR_RETURN(within, waiting->Step());
    if (!within) continue;
    if (answered_.contains(waiting->Integer(0))) continue;
    places.emplace_back(PlaceOf({.prompt = waiting->CheckedText(1, "prompt"),
                                 .system = waiting->CheckedText(2, "system")}),
                        waiting->Integer(0));
    bytes += places.back().first.size();
  }
  waiting->Reset();
  std::sort(places.begin(), places.end(), std::greater<>());
  for (const auto& [place, number] : places) ordered_.push_back(number);
  return absl::OkStatus();
}

// A row that fails keeps the answer that it had, to what was asked before a refresh.
absl::Status JobStore::WriteAnswer(int64_t number, const JobAnswer& answer, Outcome outcome) {
  ASSIGN_OR_RETURN(Statement * complete,
                   Prepared(&complete_,
                            "UPDATE {db}.lm_job_rows SET state = ?2, "
                            "value = CASE WHEN ?2 = 'failed' THEN coalesce(?3, value) ELSE ?3 END, "
                            "error = ?4, "
                            "finish = ?5, tokens_in = ?6, tokens_cached = ?7, tokens_out = ?8, "
                            "prompt_version = ?9, model = ?10, "
                            "worker = NULL, lease = NULL, "
                            "answered = strftime('%Y-%m-%d %H:%M:%f', 'now') WHERE number = ?1"));
  const Generation& generation = answer.generation;
  const bool ok = generation.status.ok();
  complete->Bind(1, number);
  complete->Bind(2, outcome == Outcome::kDone   ? "done"
                    : outcome == Outcome::kKept ? "waiting"
                                                : "failed");
  complete->BindNull(3).BindNull(4).BindNull(5).BindNull(9).BindNull(10);
  if (answer.value.has_value()) complete->Bind(3, *answer.value);
  if (!ok) complete->Bind(4, generation.status.message());
  if (!answer.refused.ok()) complete->Bind(4, answer.refused.message());
  if (!answer.null_prompt) {
    complete->Bind(5, FinishReasonName(ok ? generation.finish : FinishReason::kError));
  }
  complete->Bind(6, int64_t{generation.tokens_in});
  complete->Bind(7, int64_t{generation.tokens_cached});
  complete->Bind(8, int64_t{generation.tokens_out});
  if (!answer.asked.version.empty()) complete->Bind(9, answer.asked.version);
  if (!answer.asked.model.empty()) complete->Bind(10, answer.asked.model);
  return complete->Run();
}

absl::Status JobStore::TakeAgain(int64_t number) {
  if (!job_.target.has_value()) return absl::OkStatus();
  ASSIGN_OR_RETURN(Statement kept, Make("SELECT value FROM {db}.lm_job_rows WHERE number = ?"));
  RETURN_IF_ERROR(kept.Bind(1, number).Step().status());
  JobAnswer answer;
  ASSIGN_OR_RETURN(answer.value, OptionalText(kept, 0));
  kept.Reset();
  absl::Status refused;
  RETURN_IF_ERROR(target_.Offer(number, answer, &refused));
  RETURN_IF_ERROR(target_.broken());
  if (refused.ok()) return absl::OkStatus();
  ASSIGN_OR_RETURN(
      Statement fail,
      Make("UPDATE {db}.lm_job_rows SET state = 'failed', error = ?2 WHERE number = ?1"));
  return fail.Bind(1, number).Bind(2, refused.message()).Run();
}

absl::StatusOr<JobStore::Outcome> JobStore::Complete(int64_t number, JobAnswer answer) {
  ASSIGN_OR_RETURN(Statement * mine,
                   Prepared(&select_mine_,
                            "SELECT vanished IS NOT NULL FROM {db}.lm_job_rows "
                            "WHERE number = ? AND worker = ? AND state = 'running'"));
  mine->Bind(1, number).Bind(2, worker_.name());  // whatever the job is called by now
  ASSIGN_OR_RETURN(const bool owned, mine->Step());
  const bool vanished = owned && mine->Integer(0) != 0;
  mine->Reset();
  if (!owned) return Outcome::kLost;
  Outcome outcome = answer.generation.status.ok() ? Outcome::kDone : Outcome::kFailed;
  absl::Status written = WriteAnswer(number, answer, outcome);
  if (absl::IsInvalidArgument(written)) {
    // Longer than SQLITE_LIMIT_LENGTH lets a row be, or against a constraint that was added to the
    // table.
    const int most = sqlite3_limit(database_.db(), SQLITE_LIMIT_LENGTH, -1);
    const size_t bytes = answer.value.has_value() ? answer.value->size() : 0;
    const std::string why =
        absl::StrCat("the answer of ", bytes, " bytes cannot be stored: ", written.message());
    answer.value.reset();
    answer.store = false;
    answer.generation.status = absl::InvalidArgumentError(Head(why, most / 4));
    outcome = Outcome::kFailed;
    written = WriteAnswer(number, answer, outcome);
  }
  RETURN_IF_ERROR(written);
  // What has vanished keeps its answer, and the target takes it when the row comes back.
  if (answer.store && job_.target.has_value() && !vanished) {
    RETURN_IF_ERROR(target_.Offer(number, answer, &answer.refused));
    if (!answer.refused.ok()) {
      outcome = target_.broken().ok() ? Outcome::kFailed : Outcome::kKept;
      RETURN_IF_ERROR(WriteAnswer(number, answer, outcome));
    }
  }
  return outcome;
}

absl::StatusOr<std::optional<JobRow>> JobStore::Claimed(int64_t number) {
  ASSIGN_OR_RETURN(Statement * row,
                   Prepared(&select_claimed_,
                            absl::StrCat("SELECT ", kRowColumns,
                                         " FROM {db}.lm_job_rows WHERE number = ?1 AND job = ?2 "
                                         "AND state = 'running' AND worker = ?3")));
  row->Bind(1, number).Bind(2, job_.name).Bind(3, worker_.name());
  ASSIGN_OR_RETURN(const bool there, row->Step());
  if (!there) return std::nullopt;
  ASSIGN_OR_RETURN(JobRow found, RowOf(*row));
  row->Reset();
  return found;
}

absl::StatusOr<std::optional<JobRow>> JobStore::AnyAnswered() {
  ASSIGN_OR_RETURN(
      Statement row,
      Make(absl::StrCat("SELECT ", kRowColumns,
                        " FROM {db}.lm_job_rows WHERE number = (SELECT number FROM (SELECT number, "
                        "length(prompt) AS length FROM {db}.lm_job_rows WHERE job = ?1 AND "
                        "state = 'done' AND finish IS NOT NULL LIMIT 100) ORDER BY length LIMIT "
                        "1)")));
  ASSIGN_OR_RETURN(const bool there, row.Bind(1, job_.name).Step());
  if (!there) return std::nullopt;
  return RowOf(row);
}

absl::Status JobStore::Release(bool untried) {
  ASSIGN_OR_RETURN(Statement release,
                   Make("UPDATE {db}.lm_job_rows SET state = 'waiting', worker = NULL, "
                        "lease = NULL, attempts = max(attempts - ?3, 0) "
                        "WHERE job = ?1 AND state = 'running' AND worker = ?2"));
  return release.Bind(1, job_.name).Bind(2, worker_.name()).Bind(3, int64_t{untried}).Run();
}

absl::Status JobStore::Recover(absl::Time now, absl::Duration lease) {
  ASSIGN_OR_RETURN(Statement others,
                   Make("SELECT worker, max(lease) FROM {db}.lm_job_rows WHERE "
                        "job = ? AND state = 'running' AND worker IS NOT ? GROUP BY worker"));
  ASSIGN_OR_RETURN(Statement give_back,
                   Make("UPDATE {db}.lm_job_rows SET state = 'waiting', "
                        "worker = NULL, lease = NULL "
                        "WHERE job = ? AND state = 'running' AND worker IS ?"));
  std::vector<OwnedValue> gone;  // what another program wrote may be no text
  std::map<std::string, OthersClaim> seen;
  const auto tick = std::chrono::steady_clock::now();
  // A run that has waited for the same lock as this one has not renewed its claims meanwhile.
  const bool could_renew = database_.waited() < kLongWait;
  others.Bind(1, job_.name).Bind(2, worker_.name());
  for (;;) {
    ASSIGN_OR_RETURN(const bool row, others.Step());
    if (!row) break;
    OwnedValue name(sqlite3_value_dup(others.Value(0)));  // before it is made a text
    if (name == nullptr) return absl::ResourceExhaustedError("out of memory");
    ASSIGN_OR_RETURN(std::string worker, others.Text(0));
    OthersClaim claimed{others.Integer(1), tick};
    const auto before = others_.find(worker);
    if (before != others_.end() && before->second.lease == claimed.lease) claimed = before->second;
    const bool silent =
        absl::FromChrono(tick - claimed.since) >= lease || claimed.lease < absl::ToUnixMillis(now);
    if ((silent && could_renew) || JobWorker::IsGone(worker)) {
      gone.push_back(std::move(name));
    }
    seen.emplace(std::move(worker), claimed);
  }
  others_ = std::move(seen);
  for (const OwnedValue& worker : gone) {
    RETURN_IF_ERROR(give_back.Bind(1, job_.name).Bind(2, worker.get()).Run());
  }
  return absl::OkStatus();
}

absl::Status JobStore::Retry() {
  RETURN_IF_ERROR(submitted_.Read(job_.name));
  ASSIGN_OR_RETURN(Statement retry, Make("UPDATE {db}.lm_job_rows SET state = 'waiting' WHERE "
                                         "job = ?1 AND state = 'failed' AND vanished IS NULL AND "
                                         "number BETWEEN ?2 AND ?3"));
  for (const SubmittedRows::Range& range : submitted_.Others(INT64_MAX)) {
    RETURN_IF_ERROR(retry.Bind(1, job_.name).Bind(2, range.first).Bind(3, range.last).Run());
  }
  // A job with rows to do is not over, whatever becomes of this run.
  ASSIGN_OR_RETURN(Statement reopen,
                   Make("UPDATE {db}.lm_jobs SET ended = NULL, status = NULL WHERE name = ?1 AND "
                        "ended IS NOT NULL AND EXISTS (SELECT 1 FROM {db}.lm_job_rows WHERE "
                        "job = ?1 AND state = 'waiting' AND vanished IS NULL)"));
  return reopen.Bind(1, job_.name).Run();
}

absl::Status JobStore::TellSubmitted() {
  return database_.Transact([this]() -> absl::Status {
    ASSIGN_OR_RETURN(const JobCounts counts, Counts());
    if (counts.submitted == 0 && counts.waiting == 0) return EndIfOver(/*anew=*/true);
    return End(/*over=*/false, submitted_.Told(counts));
  });
}

// Each half by its index alone: the rows may be long.
absl::StatusOr<JobCounts> JobStore::Counts() {
  ASSIGN_OR_RETURN(Statement * counts,
                   Prepared(&counts_,
                            "SELECT state, count(*), sum(number <= ?2), 0 FROM {db}.lm_job_rows "
                            "WHERE job = ?1 GROUP BY state UNION ALL "
                            "SELECT state, -count(*), -sum(number <= ?2), count(*) "
                            "FROM {db}.lm_job_rows WHERE job = ?1 AND vanished IS NOT NULL "
                            "GROUP BY state"));
  counts->Bind(1, job_.name).Bind(2, last_.value_or(0));
  JobCounts result;
  for (;;) {
    ASSIGN_OR_RETURN(const bool row, counts->Step());
    if (!row) break;
    ASSIGN_OR_RETURN(std::string state, counts->Text(0));
    const int64_t count = counts->Integer(1);
    result.vanished += counts->Integer(3);
    if (state == "waiting") {
      result.waiting += count;
    } else if (state == "running") {
      result.running += count;
      result.awaited += counts->Integer(2);
    } else if (state == "done") {
      result.done += count;
    } else if (state == "failed") {
      result.failed += count;
    } else {
      result.unknown += count;
      result.stranger = std::move(state);
    }
  }
  ASSIGN_OR_RETURN(result.submitted, submitted_.Count(job_.name));
  result.waiting -= result.submitted;
  return result;
}

absl::StatusOr<std::string> JobStore::FailureOf(int64_t number) {
  ASSIGN_OR_RETURN(Statement failure, Make("SELECT id, error FROM {db}.lm_job_rows "
                                           "WHERE number = ? AND state = 'failed'"));
  ASSIGN_OR_RETURN(const bool row, failure.Bind(1, number).Step());
  if (!row) return "";
  ASSIGN_OR_RETURN(const std::string id, failure.Text(0));
  ASSIGN_OR_RETURN(const std::string error, failure.Text(1));
  return absl::StrCat("id ", id, ": ", error);
}

}  // namespace lm
