#include "extension/jobs/job_run.h"

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "engine/base/monotonic_time.h"
#include "engine/base/out_of_memory.h"
#include "engine/base/status_macros.h"
#include "engine/runtime/trouble.h"
#include "extension/batch/map_reduce.h"
#include "extension/connection/spending.h"
#include "extension/connection/statement_call.h"
#include "extension/host/boundary.h"
#include "extension/host/interrupt.h"
#include "extension/host/statement.h"
#include "extension/jobs/job_options.h"

namespace lm {
namespace {

constexpr char kOptions[] = "the job's options:";
// How long answers wait for others to be committed with them, and how often a claim is renewed.
constexpr absl::Duration kCommitInterval = absl::Seconds(1);
// How often a run that has no rows looks after those of others.
constexpr absl::Duration kPollForOthers = absl::Milliseconds(100);
// Of the texts that are under way.
constexpr size_t kMostTextBytes = 64 << 20;
constexpr absl::Duration kPoll = absl::Milliseconds(2);
// What the end of an interrupted statement may take.
constexpr absl::Duration kPatienceAtTheEnd = absl::Milliseconds(20);
// What the probe asks where no row has been answered, and how long its answer may be: some servers
// take no fewer tokens.
constexpr char kProbe[] = "Hello.";
constexpr char kProbeMessages[] = R"([{"role":"user","content":"Hello."}])";
constexpr int32_t kProbeTokens = 16;

// Whether the model's server has thought about the prompt.
bool IsAnswered(const Generation& generation) {
  const absl::Status& status = generation.status;
  return !generation.remembered &&
         (status.ok() || absl::IsInvalidArgument(status) || absl::IsOutOfRange(status) ||
          absl::IsFailedPrecondition(status));
}

}  // namespace

JobRun::JobRun(const JobRunOptions& options, FoundJob job, Connection& connection)
    : options_(options),
      database_(std::move(job.database)),
      store_(std::move(job.store)),
      connection_(connection),
      user_(connection.db()),
      max_errors_(options.max_errors),
      trouble_(options.outage) {}

absl::StatusOr<std::unique_ptr<JobRun>> JobRun::Begin(Connection& connection, absl::string_view job,
                                                      const JobRunOptions& options) {
  ASSIGN_OR_RETURN(FoundJob found, OpenJob(connection, job, options.database, options.refresh));
  std::unique_ptr<JobRun> run(new JobRun(options, std::move(found), connection));
  run->work_ = StatementCall::Work();
  RETURN_IF_ERROR(run->MeetModel());
  run->began_ = run->last_report_ = MonotonicTime::Now();
  return run;
}

absl::Status JobRun::MeetModel() {
  RETURN_IF_ERROR(ReadOptions());
  const absl::Status absence = call_->generator().absence();
  const MonotonicTime now = MonotonicTime::Now();
  if (absence.ok()) {
    trouble_.Answered(now);
    RETURN_IF_ERROR(PlanRows());
    RETURN_IF_ERROR(database_->Transact([&]() -> absl::Status {
      RETURN_IF_ERROR(store_->Recover(absl::Now(), options_.lease));
      return options_.retry ? store_->Retry() : absl::OkStatus();
    }));
  } else if (trouble_.any()) {
    trouble_.ProbeFailed(absence, now);
  } else {
    RowTrouble of_no_row;
    trouble_.Met(&of_no_row, absence, now);
  }
  ASSIGN_OR_RETURN(const JobCounts counts, store_->Counts());
  finished_before_ = counts.done + counts.failed;
  Show(counts);
  return absl::OkStatus();
}

absl::StatusOr<std::optional<JobProgress>> JobRun::AwaitModel() {
  const MonotonicTime now = MonotonicTime::Now();
  if (trouble_.MayProbe(now)) {
    RETURN_IF_ERROR(MeetModel());
  } else {
    const WaitingFor waiting(work_.get(), "network");
    absl::SleepFor(kPoll);
  }
  if (has_met() || now - last_report_ < options_.progress) return std::nullopt;
  last_report_ = now;
  return Progress(now);
}

absl::Status JobRun::ReadOptions() {
  absl::StatusOr<JobOptions> own = ReadJobOptions(store_->job().options);
  RETURN_IF_ERROR(InWordsOf(kOptions, own.status()));
  parts_ = own->parts;
  const absl::StatusOr<GenerationOptions> alone = ReadGenerationOptions(own->of_calls, {}, {});
  RETURN_IF_ERROR(InWordsOf(kOptions, alone.status()));
  absl::StatusOr<CallOptions> options = [&]() -> absl::StatusOr<CallOptions> {
    // Between looks the run reports, and looks whether it is over. One that waits for no outage has
    // the patience of a row.
    const bool waits = options_.outage > absl::ZeroDuration();
    connection_.set_patience(waits ? Patience::kNone : Patience::kOfARow);
    const absl::Cleanup looked = [this] { connection_.set_patience(Patience::kOfARow); };
    ASSIGN_OR_RETURN(CallOptions read,
                     ReadCallOptions(own->of_calls, connection_, {.on_error = OnError::kNull}));
    if (parts_ == nullptr) return read;
    RETURN_IF_ERROR(CheckOneAnswer(read.generation));
    read.generation.on_overflow = OnOverflow::kError;
    return read;
  }();
  // Neither memory nor a model that they do not name is theirs.
  if (TroubleOf(options.status()) != Trouble::kNone) return options.status();
  if (!options.ok() && alone->model.empty()) RETURN_IF_ERROR(connection_.Use("").status());
  RETURN_IF_ERROR(InWordsOf(kOptions, options.status()));
  GenerationOptions& generation = options->generation;
  if (generation.on_error == OnError::kError) max_errors_ = 0;
  // A row for which a budget is not enough has not failed: it waits. So time is looked at here, and
  // tokens and costs by each row before it is submitted.
  if (options_.max_seconds.has_value()) {
    generation.max_seconds = static_cast<double>(*options_.max_seconds);
  }
  if (generation.max_seconds > 0) most_ = absl::Seconds(generation.max_seconds);
  generation.max_seconds = 0;
  generation.max_total_tokens = options_.max_total_tokens.value_or(generation.max_total_tokens);
  generation.max_cost = options_.max_cost.value_or(generation.max_cost);
  RETURN_IF_ERROR(CheckBudget(*options));
  call_ = std::make_shared<const CallOptions>(*std::move(options));
  return absl::OkStatus();
}

std::optional<std::string> JobRun::SystemOfJob() const {
  const std::optional<std::string>& system = store_->job().system;
  return parts_ != nullptr && !system.has_value() ? kSummarise : system;
}

absl::Status JobRun::PlanRows() {
  const ModelInfo& info = call_->generator().info();
  ASSIGN_OR_RETURN(const std::string digest, call_->generator().DigestFor(call_->generation));
  const std::optional<std::string> system = SystemOfJob();
  question_.emplace(call_->generation, std::string(call_->SystemOf(system)), digest, parts_.get());
  const bool has_file = call_->generator().engine() != nullptr;
  if (!options_.refresh) return store_->Plan(info.name, has_file ? digest : "");
  // A model that the job's options name was changed on purpose.
  const bool any_model = !call_->generation.model.empty();
  ASSIGN_OR_RETURN(changes_, store_->Refresh(*question_, info.name, any_model));
  return absl::OkStatus();
}

JobRun::~JobRun() {
  if (fork_guard_.forked() || over_ || !has_claimed_ || store_->IsGone()) return;
  // Without exceptions, and whatever comes of it: claims run out.
  const absl::Status committed =
      Guarded([this] { return Commit(kPatienceAtTheEnd, Others::kGoBack); });
  if (committed.ok()) return;
  Guarded([this] {
    return database_->Transact([this] { return store_->Release(); }, kPatienceAtTheEnd);
  }).IgnoreError();
}

int64_t JobRun::CountAnswered() {
  HearProbe();
  int64_t answered = 0;
  for (auto row = rows_.begin(); row != rows_.end();) {
    const auto at = row++;
    at->answer.Collect();
    if (!at->answer.answered()) continue;
    const bool heard = std::exchange(at->heard, true);
    num_collected_ += !heard;
    if (heard || Hear(*at)) {
      ++answered;
    } else {
      held_.push_back({at->number, std::move(at->trouble)});
      rows_.erase(at);
    }
  }
  for (auto row = rows_.begin(); row != rows_.end();) {
    const auto at = row++;
    if (at->answer.submitted()) continue;
    if (IsHeldBack(*at)) break;
    if (trouble_.any() && !at->in_turn) continue;
    // A full queue of the engine may have room again; a budget has once an answer has come.
    const bool refused = !at->answer.over_budget().ok();
    if (refused && num_collected_ == collected_when_refused_) break;
    at->submitted = MonotonicTime::Now();
    if (!at->answer.Submit()) {
      collected_when_refused_ = num_collected_;
      break;
    }
    if (!at->answer.answered()) continue;
    at->heard = true;  // it needed no model, or its tokens could not be counted
    if (TroubleOf(at->answer.answer().generation.status) == Trouble::kNone || Hear(*at)) {
      ++answered;
    } else {
      held_.push_back({at->number, std::move(at->trouble)});
      rows_.erase(at);
    }
  }
  return answered;
}

bool JobRun::Hear(Row& row) {
  const Generation& generation = row.answer.answer().generation;
  if (TroubleOf(generation.status) != Trouble::kNone) {
    row.settled = !trouble_.Met(&row.trouble, generation.status, MonotonicTime::Now());
    return row.settled;
  }
  if (IsAnswered(generation)) {
    trouble_.Answered(row.submitted + generation.queued);
    if (!trouble_.any()) probe_.reset();  // what it would say is of a trouble that is over
  }
  return true;
}

void JobRun::HearProbe() {
  if (!probe_.has_value()) return;
  probe_->Collect();
  if (!probe_->answered()) return;
  const Generation& generation = probe_->answer().generation;
  if (TroubleOf(generation.status) == Trouble::kNone && IsAnswered(generation)) {
    trouble_.ProbeAnswered(MonotonicTime::Now());
  } else {
    trouble_.ProbeFailed(generation.status, MonotonicTime::Now());
  }
  probe_.reset();
}

bool JobRun::IsUnderWay() {
  return probe_.has_value() || std::any_of(rows_.begin(), rows_.end(), [](const Row& row) {
           return row.answer.submitted() && !row.answer.answered();
         });
}

absl::Status JobRun::AskAgain() {
  if (held_.empty() && rows_.empty()) trouble_.Forget();
  if (!trouble_.any()) return Release(/*only_one=*/false);
  return trouble_.TakeTurn() ? Release(/*only_one=*/true) : AskProbe();
}

absl::Status JobRun::Release(bool only_one) {
  while (!held_.empty()) {
    Held held = std::move(held_.front());
    held_.pop_front();
    ASSIGN_OR_RETURN(std::optional<JobRow> row, store_->Claimed(held.number));
    if (!row.has_value()) continue;
    Add(*std::move(row), std::move(held.trouble));
    if (!only_one) continue;
    rows_.back().in_turn = true;
    return absl::OkStatus();
  }
  for (Row& row : rows_) {
    if (!only_one || row.answer.submitted()) continue;
    row.in_turn = true;
    break;
  }
  return absl::OkStatus();
}

absl::Status JobRun::AskProbe() {
  const MonotonicTime now = MonotonicTime::Now();
  if (probe_.has_value() || !trouble_.MayProbe(now)) return absl::OkStatus();
  const bool in_turn = std::any_of(rows_.begin(), rows_.end(), [](const Row& row) {
    return row.in_turn && !row.answer.answered();
  });
  if (in_turn) return absl::OkStatus();
  JobRow probe{.prompt = call_->generation.messages ? kProbeMessages : kProbe};
  if (parts_ == nullptr) {
    ASSIGN_OR_RETURN(std::optional<JobRow> known, store_->AnyAnswered());
    if (known.has_value() && known->prompt.ok() && known->prompt->has_value()) {
      probe = *std::move(known);
    }
  }
  if (probe.system.ok() && !probe.system->has_value()) probe.system = SystemOfJob();
  CallOptions options = *call_;
  GenerationOptions& generation = options.generation;
  generation.cache = false;
  generation.vote = generation.n = generation.best_of = 0;
  generation.constraint = {};
  generation.max_tokens = std::min(generation.max_tokens, kProbeTokens);
  probe_.emplace(RowPrompt{.prompt = std::move(probe.prompt),
                           .system = std::move(probe.system),
                           .options = std::make_shared<const CallOptions>(std::move(options))});
  // A probe that is refused here has not reached the model.
  if (!probe_->Submit() || probe_->answered()) {
    trouble_.ProbeFailed(probe_->answer().generation.status, now);
    probe_.reset();
  }
  return absl::OkStatus();
}

int64_t JobRun::Wanted(int64_t left) const {
  return trouble_.any() ? 0 : std::max<int64_t>(options_.chunk - left, 0);
}

// Some tens of rows of the longest texts that a model can have.
size_t JobRun::WantedBytes() const {
  size_t left = kMostTextBytes;
  for (const Row& row : rows_) left -= std::min(left, row.answer.answered() ? 0 : row.bytes);
  return left;
}

// With a budget, texts that are read in parts come one after the other: of many that have begun
// none might have enough left to be ended.
bool JobRun::IsHeldBack(const Row& row) const {
  if (parts_ == nullptr || !HasBudget(call_->generation)) return false;
  return std::any_of(rows_.begin(), rows_.end(), [&row](const Row& other) {
    return &other != &row && other.answer.submitted() && !other.answer.answered();
  });
}

bool JobRun::IsTimeToCommit(int64_t num_answered, MonotonicTime now) const {
  if (num_answered >= std::max<int64_t>(options_.chunk / 2, 1)) return true;
  if (num_answered > 0 && trouble_.MayProbe(now)) return true;
  if (!held_.empty()) return now - last_commit_ >= kCommitInterval;
  if (rows_.empty()) return now - last_commit_ >= kPollForOthers;
  return num_answered == static_cast<int64_t>(rows_.size()) ||
         now - last_commit_ >= kCommitInterval;
}

absl::StatusOr<JobAnswer> JobRun::TakeAnswer(Row& row) {
  RETURN_IF_ERROR(row.answer.Await(user_));  // it is there
  const RowAnswer& answer = row.answer.answer();
  if (answer.null_prompt) return JobAnswer{.null_prompt = true, .asked = row.asked};
  return JobAnswerOf(answer.generation, call_->generation.on_error, row.asked);
}

absl::Status JobRun::Commit(std::optional<absl::Duration> patience, Others others) {
  for (bool all = false; !all;) {
    ASSIGN_OR_RETURN(all, CommitSome(patience, others));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> JobRun::CommitSome(std::optional<absl::Duration> patience, Others others) {
  bool all = true;
  std::vector<std::list<Row>::iterator> taken;
  std::vector<int64_t> written;
  std::vector<JobRow> claimed;
  int64_t failed = 0, last_failed = 0, cached = 0, tokens_out = 0;
  RETURN_IF_ERROR(store_->Transact(
      [&]() -> absl::Status {
        all = true;
        taken.clear();
        written.clear();
        claimed.clear();
        failed = cached = tokens_out = 0;
        RETURN_IF_ERROR(store_->CheckThere());
        for (auto row = rows_.begin(); row != rows_.end(); ++row) {
          if (!row->answer.Done()) continue;
          all = !store_->WantsCommit();
          if (!all) return absl::OkStatus();
          ASSIGN_OR_RETURN(JobAnswer answer, TakeAnswer(*row));
          // One that has come since rows were last looked at.
          if (!row->settled && TroubleOf(answer.generation.status) != Trouble::kNone) continue;
          const bool remembered = answer.generation.remembered;
          cached += remembered;
          tokens_out += remembered ? 0 : answer.generation.tokens_out;
          ASSIGN_OR_RETURN(const JobStore::Outcome outcome,
                           store_->Complete(row->number, std::move(answer)));
          if (outcome == JobStore::Outcome::kFailed) {
            ++failed;
            last_failed = row->number;
          }
          taken.push_back(row);
          if (outcome != JobStore::Outcome::kLost) written.push_back(row->number);
        }
        if (others != Others::kStay) return store_->Release(others == Others::kGoBackUntried);
        if (failed_ + failed > max_errors_ || !store_->broken().ok()) return absl::OkStatus();
        const absl::Time now = absl::Now();
        RETURN_IF_ERROR(store_->Recover(now, options_.lease));
        const auto left = static_cast<int64_t>(rows_.size() - taken.size() + held_.size());
        // What a trigger has not let be done with would be waited for for ever.
        if (left == 0) RETURN_IF_ERROR(store_->Release());
        const size_t bytes = WantedBytes();
        const int64_t wanted = bytes > 0 ? Wanted(left) : 0;
        RETURN_IF_ERROR(store_->Claim(wanted, bytes, now + options_.lease, &claimed));
        if (wanted > 0) none_waits_ = claimed.empty();
        return absl::OkStatus();
      },
      patience));
  has_claimed_ |= !claimed.empty();
  for (const int64_t number : written) store_->SetAside(number);
  for (auto row : taken) {
    if (!row->heard) {  // it came while a lock was waited for
      ++num_collected_;
      Hear(*row);
    }
    rows_.erase(row);
  }
  failed_ += failed;
  if (failed > 0) last_failed_ = last_failed;
  cached_ += cached;
  tokens_out_ += tokens_out;
  last_commit_ = MonotonicTime::Now();
  database_->Persevere();
  if (all && others == Others::kStay) Submit(std::move(claimed));
  return all;
}

void JobRun::Submit(std::vector<JobRow> claimed) {
  for (JobRow& row : claimed) Add(std::move(row));
  const int64_t answered = CountAnswered();
  if (static_cast<int64_t>(rows_.size()) - answered > 1) StatementCall::Batched();
}

void JobRun::Add(JobRow row, RowTrouble trouble) {
  JobAsked asked = question_->Of(row);
  trouble.before = std::move(row.error);
  if (std::optional<Generation> kept = question_->Kept(row)) {
    rows_.push_back({row.number, std::move(asked),
                     PendingAnswer({.options = call_}, RowAnswer{.generation = *std::move(kept)}),
                     /*bytes=*/0, MonotonicTime::Now(), std::move(trouble),
                     /*heard=*/true});
    return;
  }
  const size_t bytes = row.bytes();
  if (row.system.ok() && !row.system->has_value()) row.system = SystemOfJob();
  PendingAnswer answer({.prompt = std::move(row.prompt),
                        .system = std::move(row.system),
                        .options = call_,
                        .parts = parts_});
  rows_.push_back({row.number, std::move(asked), std::move(answer), bytes, MonotonicTime::Now(),
                   std::move(trouble)});
}

void JobRun::Show(const JobCounts& counts) {
  if (work_ == nullptr) return;
  work_->SetJobCounts(counts.total(), counts.done, counts.failed, finished_before_);
}

absl::StatusOr<JobProgress> JobRun::Progress(MonotonicTime now) {
  ASSIGN_OR_RETURN(const JobCounts counts, store_->Counts());
  Show(counts);
  over_ = rows_.empty() && held_.empty() && none_waits_ && counts.awaited == 0;
  return JobProgress{.counts = counts,
                     .changes = changes_,
                     .finished = counts.done + counts.failed - finished_before_,
                     .cached = cached_,
                     .tokens_out = tokens_out_,
                     .elapsed = now - began_,
                     .unchanged = store_->answers_without_change(),
                     .trouble = trouble_.any() ? std::string(trouble_.last().message()) : ""};
}

std::string JobRun::BudgetsEnd(MonotonicTime now) {
  if (now - began_ >= most_) {
    return absl::StrCat("max_seconds = ", absl::ToDoubleSeconds(most_), " are over");
  }
  // In trouble nothing is submitted but the probe, and one row in its turn.
  if (probe_.has_value()) return "";
  const PendingAnswer* refused = nullptr;
  for (Row& row : rows_) {
    // One that is there and not collected has not given back what it did not take.
    if (row.answer.submitted() && !row.answer.answered() && !row.answer.stuck()) return "";
    if (trouble_.any() && !row.in_turn) continue;
    if (!row.answer.over_budget().ok()) refused = &row.answer;
  }
  return refused != nullptr ? std::string(refused->over_budget().message()) : "";
}

absl::StatusOr<JobProgress> JobRun::Stop(const std::string& why, Others others) {
  RETURN_IF_ERROR(Commit(std::nullopt, others));
  rows_.clear();
  held_.clear();
  ASSIGN_OR_RETURN(JobProgress progress, Progress(MonotonicTime::Now()));
  const int64_t left = progress.counts.waiting + progress.counts.running;
  const int64_t total = progress.counts.total();
  const std::string which = total > 0 ? absl::StrCat(left, " of ", total, " rows are") : "it is";
  progress.stopped = absl::StrCat("stopped: ", why, "; ", which, " left for a later run");
  RETURN_IF_ERROR(
      database_->Transact([&] { return store_->End(/*over=*/false, progress.stopped); }));
  StatementCall::Note(progress.stopped);
  over_ = true;
  return progress;
}

absl::Status JobRun::StopForErrors() {
  ASSIGN_OR_RETURN(const std::string last, store_->FailureOf(last_failed_));
  const std::string why =
      absl::StrCat(failed_, " rows failed, max_errors is ", max_errors_, last.empty() ? "" : "; ",
                   last);  // another run may have taken it up again
  RETURN_IF_ERROR(Stop(why).status());
  return absl::AbortedError(absl::StrCat("job '", store_->job().name, "' stopped: ", why));
}

absl::Status JobRun::StopForTarget() {
  const std::string why(store_->broken().message());
  RETURN_IF_ERROR(Stop(why).status());
  return absl::AbortedError(absl::StrCat("job '", store_->job().name, "' stopped: ", why,
                                         "; answers that it has not taken are kept, and lm_run() "
                                         "gives them to it without asking again"));
}

const char* JobRun::WaitsFor() const {
  if (trouble_.any()) {
    return TroubleOf(trouble_.last()) == Trouble::kMemory ? "memory" : "network";
  }
  return rows_.empty() ? "others" : "model";
}

absl::Status JobRun::StopForTrouble() {
  const absl::Status over = trouble_.Over(IsUnderWay(), MonotonicTime::Now());
  if (over.ok()) return over;
  return StopUntried(std::string(over.message()));
}

absl::Status JobRun::StopUntried(const std::string& why) {
  RETURN_IF_ERROR(Stop(why, Others::kGoBackUntried).status());
  return absl::AbortedError(absl::StrCat("job '", store_->job().name, "' stopped: ", why,
                                         "; the rows that are left wait, and lm_run() goes on "
                                         "with them"));
}

absl::StatusOr<std::optional<JobProgress>> JobRun::Advance() {
  if (fork_guard_.forked()) return ForkGuard::Error();
  std::optional<JobProgress> progress;
  const absl::Status worked = Guarded([&]() -> absl::Status {
    ASSIGN_OR_RETURN(progress, Work());
    return absl::OkStatus();
  });
  if (worked.ok()) return progress;
  // SQLite's own want of memory is of that text, too.
  if (worked.message() != OutOfMemory().message() || store_->IsGone()) return worked;
  auto stop = [&] { return StopUntried(std::string(worked.message())); };
  absl::Status stopped = Guarded(stop);
  if (!absl::IsAborted(stopped)) {
    rows_.clear();  // without them there may be enough to give them back
    held_.clear();
    stopped = Guarded(stop);
  }
  return absl::IsAborted(stopped) ? stopped : worked;
}

absl::StatusOr<std::optional<JobProgress>> JobRun::Work() {
  while (!over_) {
    if (database_->Interrupted()) return absl::CancelledError("interrupted");
    const int64_t answered = CountAnswered();
    if (const std::string why = BudgetsEnd(MonotonicTime::Now()); !why.empty()) return Stop(why);
    RETURN_IF_ERROR(StopForTrouble());
    if (!has_met()) {
      ASSIGN_OR_RETURN(std::optional<JobProgress> waits, AwaitModel());
      if (waits.has_value()) return waits;
      continue;
    }
    // Answers that have come are committed before: the probe may be one of these rows.
    if (!trouble_.any() || answered == 0) RETURN_IF_ERROR(AskAgain());
    if (!IsTimeToCommit(answered, MonotonicTime::Now())) {
      const WaitingFor waiting(work_.get(), WaitsFor());
      absl::SleepFor(kPoll);
      continue;
    }
    RETURN_IF_ERROR(Commit(std::nullopt, Others::kStay));
    if (!store_->broken().ok()) return StopForTarget();
    if (failed_ > max_errors_) return StopForErrors();
    // The end is always reported; until then, not too often.
    const MonotonicTime now = MonotonicTime::Now();
    const bool due = now - last_report_ >= options_.progress;
    if (!rows_.empty() && !due) continue;
    ASSIGN_OR_RETURN(JobProgress progress, Progress(now));
    if (!over_ && !due) continue;
    if (over_) RETURN_IF_ERROR(store_->Conclude(/*anew=*/progress.finished == 0));
    if (over_ && progress.counts.unknown > 0) {
      return absl::FailedPreconditionError(
          absl::StrCat("job '", store_->job().name, "': ", progress.counts.unknown,
                       " rows of lm_job_rows have a state such as '", progress.counts.stranger,
                       "'; waiting, running, done and failed are known. The others are done with"));
    }
    last_report_ = now;
    return progress;
  }
  return std::nullopt;
}

}  // namespace lm
