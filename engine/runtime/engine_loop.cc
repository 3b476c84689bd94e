// The engine's thread.
#include <algorithm>
#include <cfenv>
#include <exception>
#include <optional>
#include <utility>

#include "engine/backend/machine_ceilings.h"
#include "engine/base/exit_guard.h"
#include "engine/base/out_of_memory.h"
#include "engine/runtime/adapter_text.h"
#include "engine/runtime/draft_model.h"
#include "engine/runtime/engine.h"
#include "engine/runtime/mtp_drafter.h"
#include "engine/runtime/prompt_lookup.h"

namespace lm {
namespace {

// Whether nothing of the model can be used any more: its device is gone, or its packed weights are
// damaged.
bool IsLoss(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDataLoss(status);
}

}  // namespace

void Engine::Run() {
  ExitGuard guard([](void* engine) { static_cast<Engine*>(engine)->AskToStop(); }, this);
  if (!guard.allowed()) AskToStop();
  ReadyToThrow();
  std::fesetenv(FE_DFL_ENV);  // however the host's thread rounds
  while (WaitForWork()) {
    try {
      AnswerInspections();
      EndLoads();
      TakeIncoming();
      Step();
      LayOutMore();
      recovered_ = false;
    } catch (...) {  // memory; the process is somebody else's and must live
      Recover();
    }
  }
  if (scheduler_ != nullptr) {
    try {
      TakeIncoming();
      stored_.DrainLoads();
      scheduler_->EndLoads();
      FailAll(absl::CancelledError("the engine was stopped"));
      Deliver();
    } catch (...) {
    }
  }
  DropScheduled();
  DropQueued();
  stored_.Flush(absl::InfiniteDuration());
}

bool Engine::WaitForWork() {
  absl::MutexLock lock(&mutex_);
  auto has_work = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stopping_ || loaded_ || !incoming_.empty() || !inspections_.empty();
  };
  if (scheduler_ != nullptr && scheduler_->idle() && !weights_left_) {
    mutex_.Await(absl::Condition(&has_work));
  } else if (scheduler_ != nullptr && scheduler_->idle()) {
    mutex_.AwaitWithDeadline(absl::Condition(&has_work), lay_out_again_);
  } else if (only_loads_) {  // those that wait may be abandoned meanwhile
    mutex_.AwaitWithTimeout(absl::Condition(&has_work), absl::Milliseconds(20));
  }
  return !stopping_;
}

void Engine::AnswerInspections() {
  for (;;) {
    std::shared_ptr<CacheInspection> inspection;
    {
      absl::MutexLock lock(&mutex_);
      if (inspections_.empty()) return;
      inspection = inspections_.front();
    }
    std::vector<PrefixTree::Run> runs = scheduler_->blocks().CachedRuns(inspection->salt());
    {
      absl::MutexLock lock(&mutex_);
      inspections_.pop_front();
    }
    inspection->Finish(std::move(runs));
  }
}

void Engine::TakeIncoming() {
  for (;;) {
    std::unique_ptr<Sequence> sequence;
    {
      absl::MutexLock lock(&mutex_);
      if (incoming_.empty()) return;
      sequence = std::make_unique<Sequence>(
          incoming_.front(), &model_->tokenizer(), max_sequence_tokens_,
          model_->language_model().cache().recurrent(),
          AdaptersText(model_->info(), incoming_.front()->spec().adapters));
      incoming_.pop_front();
      ++num_waiting_;
    }
    stored_.Describe(sequence.get());
    // One that was abandoned while it lay in incoming_ was counted before anybody could look for
    // it.
    look_for_abandoned_ = look_for_abandoned_ || sequence->request().abandoned();
    if (const std::optional<FinishReason> end = sequence->trivial_end()) {
      Generation result = sequence->TakeResult(*end, absl::Now());
      Finish(std::move(sequence), std::move(result));
    } else {
      scheduler_->Add(std::move(sequence));
    }
  }
}

// Schedules a batch, runs the model over it, samples, and hands out what is finished.
void Engine::Step() {
  DropAbandoned();
  MoveRaised();
  FollowGrammars();
  StepPlan plan = scheduler_->Schedule(MakeStepLimits());
  ReportQueue();
  const absl::Status ops = plan.loads.empty() ? absl::OkStatus() : CarryOut(&plan);
  only_loads_ =
      plan.entries.empty() && scheduler_->num_loading() > 0 && scheduler_->num_following() == 0;
  if (IsLoss(ops)) {
    LoseModel(ops);
  } else if (!ops.ok()) {
    FailBatch(plan, ops);
  } else if (!plan.entries.empty() && MayFollow(&plan)) {
    RunQueue(std::move(plan));
  } else if (!plan.entries.empty()) {
    const StepWork work = work_meter_.Count(plan);
    const absl::Time start = absl::Now();
    BeginShares(plan, start);
    const absl::Status status = RunModel(plan);
    const absl::Time end = absl::Now();
    step_took_ = end - start;
    for (const StepEntry& e : plan.entries) e.sequence->EndShare(end);
    if (status.ok()) {
      RecordStep(plan, work, end - start);
      stored_.WriteFound(plan);
      Advance(plan, end);
    } else {
      Fail(plan, status);
    }
  } else if (!only_loads_ && !scheduler_->idle() && scheduler_->num_following() == 0) {
    FailAll(absl::InternalError("the scheduler found nothing to do although requests wait"));
  }
  Deliver();
}

// Does the plan's cache operations, after which its loads may write into their blocks, and begins
// the loads.
absl::Status Engine::CarryOut(StepPlan* plan) {
  ModelStep step;
  step.cache_ops = std::exchange(plan->cache_ops, {});
  step.tables.blocks.resize(model_->language_model().cache().classes.size());
  const absl::Status status = step.cache_ops.empty() ? absl::OkStatus() : RunStep(std::move(step));
  stored_.BeginLoads(*plan);
  return status;
}

void Engine::EndLoads() {
  if (stored_.store() == nullptr) return;
  {
    absl::MutexLock lock(&mutex_);
    loaded_ = false;
  }
  if (stored_.EndLoads(scheduler_.get())) look_for_abandoned_ = true;
}

void Engine::BeginShares(const StepPlan& plan, absl::Time now) {
  int32_t tokens = 0;
  for (const StepEntry& entry : plan.entries) tokens += entry.num_tokens;
  for (const StepEntry& e : plan.entries) e.sequence->BeginShare(e.num_tokens, tokens, now);
}

// Between two steps: has the model lay out weights for as long as the step took, or until there is
// something else to do.
void Engine::LayOutMore() {
  constexpr absl::Duration kAtOnce = absl::Milliseconds(5);
  constexpr absl::Duration kWithoutMemory = absl::Seconds(1);
  constexpr absl::Duration kWhileMeasured = absl::Milliseconds(20);
  if (!weights_left_) return;
  const absl::Time start = absl::Now();
  const absl::Time end = start + std::exchange(step_took_, absl::ZeroDuration());
  const bool idle = scheduler_->idle() || only_loads_;
  if (start < lay_out_again_ || (!idle && start >= end)) return;
  auto others = [this] {
    absl::MutexLock lock(&mutex_);
    return stopping_ || loaded_ || !incoming_.empty() || !inspections_.empty() ||
           cancellation_->num_cancels() != cancels_seen_;
  };
  while (weights_left_) {
    if (MeasuresCeilings()) {  // which would be lower
      lay_out_again_ = absl::Now() + kWhileMeasured;
      return;
    }
    absl::StatusOr<bool> more = model_->language_model().LayOutMore(kAtOnce);
    if (more.ok() && !*more && model_->draft() != nullptr) {
      more = model_->draft()->language_model().LayOutMore(kAtOnce);
    }
    if (IsLoss(more.status())) {
      weights_left_ = false;
      LoseModel(more.status());
      return Deliver();
    }
    if (!more.ok()) {  // until then all goes on as before
      lay_out_again_ = absl::Now() + kWithoutMemory;
      return;
    }
    weights_left_ = *more;
    RecordLayingOut(*more);
    if (others() || (!idle && absl::Now() >= end)) return;
  }
}

void Engine::RecordLayingOut(bool more) {
  absl::MutexLock lock(&mutex_);
  if (more) {
    laying_out_ = true;
    return;
  }
  if (laying_out_) before_laid_out_ = StatsNow();
  laying_out_ = false;
  stats_.laid_out = true;
}

// Takes out the sequences that nobody waits for any more and those that are out of time.
void Engine::DropAbandoned() {
  const uint64_t cancels = cancellation_->num_cancels();
  if (cancels == cancels_seen_ && !look_for_abandoned_) return;
  cancels_seen_ = cancels;
  look_for_abandoned_ = false;
  const absl::Time now = absl::Now();
  auto dropped =
      scheduler_->TakeIf([](const Sequence& sequence) { return sequence.request().abandoned(); });
  for (std::unique_ptr<Sequence>& sequence : dropped) {
    Generation result = sequence->TakeError(sequence->request().AbandonedStatus(), now);
    Finish(std::move(sequence), std::move(result));
  }
}

// What was taken before its request was raised is found here, what is taken later has the priority.
void Engine::MoveRaised() {
  const uint64_t raises = raises_->load(std::memory_order_acquire);
  if (raises == raises_seen_) return;
  raises_seen_ = raises;
  scheduler_->MoveRaised();
}

// Gives those that wait for their grammars a turn.
void Engine::FollowGrammars() {
  const std::vector<Scheduler::FollowedToEnd> ended = scheduler_->FollowGrammars();
  if (ended.empty()) return;
  const absl::Time now = absl::Now();
  for (const auto& [sequence, end] : ended) EndSequence(sequence, end, now);
}

// Finishes a running sequence where its answer, or an error, says so.
void Engine::EndSequence(Sequence* sequence, const absl::StatusOr<std::optional<FinishReason>>& end,
                         absl::Time now) {
  if (behind_ != nullptr && (!end.ok() || end->has_value())) {
    std::erase_if(behind_->entries,
                  [sequence](const StepEntry& e) { return e.sequence == sequence; });
  }
  if (!end.ok()) {
    Generation error = sequence->TakeError(end.status(), now);
    Finish(scheduler_->Finish(sequence, /*keep=*/false), std::move(error));
  } else if (end->has_value()) {
    Generation result = sequence->TakeResult(**end, now);
    if (result.status.ok() && sequence->embedding()) {
      absl::StatusOr<std::vector<float>> made =
          model_->language_model().ApplyHead(sequence->request().spec().ranks, result.embedding);
      if (made.ok()) {
        result.embedding = *std::move(made);
      } else {
        result = sequence->TakeError(made.status(), now);
      }
    }
    Finish(scheduler_->Finish(sequence, /*keep=*/true), std::move(result));
  }
}

void Engine::Fail(const StepPlan& plan, const absl::Status& status) {
  if (IsLoss(status)) {
    LoseModel(status);
  } else {
    FailBatch(plan, status);
  }
}

// The forward pass failed, or was cut short because nobody waited for it any more.
void Engine::FailBatch(const StepPlan& plan, const absl::Status& status) {
  const absl::Time now = absl::Now();
  // Copies that sequences go on from later, without tokens in this step, have not been made either.
  if (std::exchange(ops_failed_, false)) {
    for (std::unique_ptr<Sequence>& sequence : scheduler_->TakeRunning()) {
      Generation error = sequence->TakeError(status, now);
      Finish(std::move(sequence), std::move(error));
    }
    return;
  }
  const bool abandoned =
      std::all_of(plan.entries.begin(), plan.entries.end(),
                  [](const StepEntry& e) { return e.sequence->request().abandoned(); });
  if (abandoned || cancellation_->stopped()) {  // the next step, or the end, drops them
    look_for_abandoned_ = true;  // be it that their cancelling has not been counted yet
    return;
  }
  for (const StepEntry& entry : plan.entries) {
    Generation error = entry.sequence->TakeError(status, now);
    Finish(scheduler_->Finish(entry.sequence, /*keep=*/false), std::move(error));
  }
}

void Engine::FailAll(const absl::Status& status) {
  const absl::Time now = absl::Now();
  for (auto& sequence : scheduler_->TakeIf([](const Sequence&) { return true; })) {
    Generation error = sequence->TakeError(status, now);
    Finish(std::move(sequence), std::move(error));
  }
}

// Nothing of the model is there any more. Who asks next has it loaded anew (generator_registry.h).
void Engine::LoseModel(const absl::Status& status) {
  {
    absl::MutexLock lock(&mutex_);
    if (accepting_.ok()) accepting_ = absl::UnavailableError(status.message());
  }
  FailAll(status);
}

void Engine::Finish(std::unique_ptr<Sequence> sequence, Generation result) {
  const bool answered = result.status.ok() && !sequence->scoring() && !sequence->embedding();
  if (answered) speculator_->Learn(*sequence);
  finished_.push_back({std::move(sequence), std::move(result)});
}

// Hands out what is finished, after the statistics tell of it: who waits may look at once.
void Engine::Deliver() {
  ReportQueue();
  {
    absl::MutexLock lock(&mutex_);
    for (const Finished& f : finished_) {
      log_.Add(f.sequence->request(), f.result);
      Count(f, &counts_.Of(f.sequence->salt()));
      CountFreeAnswer(f);
      stats_.failed += IsFailure(f.result.status);
    }
    stats_.requests += static_cast<int64_t>(finished_.size());
  }
  for (Finished& f : finished_) f.sequence->Deliver(std::move(f.result));
  finished_.clear();
}

void Engine::Count(const Finished& finished, RequestCounts* counts) {
  const Generation& result = finished.result;
  const int64_t computed =
      std::min<int64_t>(finished.sequence->computed(), result.tokens_in) - result.tokens_cached;
  ++counts->requests;
  counts->failed += IsFailure(result.status);
  counts->tokens_prefilled += std::max<int64_t>(computed, 0);
  counts->tokens_reused += result.tokens_cached;
  counts->tokens_decoded += result.tokens_out;
}

void Engine::CountFreeAnswer(const Finished& finished) {
  const RequestSpec& spec = finished.sequence->request().spec();
  const bool free = spec.options.constraint.kind == AnswerConstraint::Kind::kNone &&
                    !spec.wants_first_choices && !spec.score_prompt && !spec.embed.has_value();
  if (!free || !finished.result.status.ok()) return;
  stats_.free_answers += finished.result.finish == FinishReason::kStop;
  stats_.free_answer_tokens += finished.result.tokens_out;
}

void Engine::ReportQueue() {
  absl::MutexLock lock(&mutex_);
  num_waiting_ = scheduler_->num_waiting();
  stats_.running = scheduler_->num_running();
  stats_.kv_blocks_free = scheduler_->blocks().num_free();
  stats_.kv_blocks_cached = scheduler_->blocks().num_cached();
  stats_.kv_bytes_free = scheduler_->blocks().free_bytes();
  stats_.kv_bytes_cached = scheduler_->blocks().cached_bytes();
}

StepLimits Engine::MakeStepLimits() const {
  auto tokens = [this](absl::Duration itl) {
    return pacer_.PromptTokens(itl, options_.step_tokens);
  };
  StepLimits limits = {.beside_interactive = tokens(options_.interactive_itl),
                       .beside_batch = tokens(options_.batch_itl),
                       .token_seconds = pacer_.token_seconds()};
  if (scheduler_->HasBatchBesideInteractive()) {
    const std::optional<int32_t> decode = speculator_->costs().TokensWithin(
        absl::ToDoubleSeconds(options_.interactive_itl), limits.token_seconds);
    limits.interactive_decode = decode.value_or(limits.interactive_decode);
  }
  return limits;
}

void Engine::RecordStep(const StepPlan& plan, const StepWork& work, absl::Duration took) {
  int64_t prefilled = 0, decoded = 0, guessed = 0;  // the last: behind prompts
  int64_t rows = 0;                                 // that decode
  for (const StepEntry& entry : plan.entries) {
    (entry.decode ? decoded : prefilled) += entry.num_tokens;
    if (!entry.decode) guessed += entry.num_guessed;
    rows += entry.decode;
  }
  pacer_.Record(static_cast<int32_t>(prefilled), took);
  if (prefilled == 0) {
    speculator_->Record(static_cast<int32_t>(decoded), took);
  }
  const absl::Duration per_token = took / (prefilled + decoded);
  absl::MutexLock lock(&mutex_);
  ++stats_.steps;
  stats_.early_steps += plan.follows;
  stats_.decode_steps += decoded > 0;
  stats_.decode_rows += rows;
  stats_.tokens_prefilled += prefilled - guessed;
  stats_.prefill_time += per_token * prefilled;
  stats_.decode_time += per_token * decoded;
  stats_.prefill_work += work.prefill;
  stats_.decode_work += work.decode;
  stats_.tokens_reused += plan.tokens_reused;
  stats_.preemptions += plan.preemptions;
}

// What became of the step's guesses.
void Engine::RecordGuesses(const StepPlan& plan) {
  if (guesses_.drafted == 0) return;
  const auto rows = std::count_if(plan.entries.begin(), plan.entries.end(),
                                  [](const StepEntry& e) { return e.samples; });
  absl::MutexLock lock(&mutex_);
  stats_.tokens_drafted += guesses_.drafted;
  stats_.tokens_accepted += guesses_.accepted;
  stats_.steps_saved += static_cast<double>(guesses_.accepted) / static_cast<double>(rows);
  guesses_ = {};
}

void Engine::RecordToken(absl::Duration latency, bool first) {
  absl::MutexLock lock(&mutex_);
  ++stats_.tokens_decoded;
  (first ? time_to_first_token_ : inter_token_latency_).Add(latency);
}

std::unique_ptr<Scheduler> Engine::MakeScheduler() const {
  const LanguageModel& model = model_->language_model();
  return std::make_unique<Scheduler>(SchedulerOptions{
      .step_tokens = options_.step_tokens,
      .max_sequences = options_.max_sequences,
      .max_logit_rows =
          MostScoredRows(model.vocab_size(), options_.max_sequences, options_.step_tokens),
      .cache = model.cache(),
      .prefix_cache = options_.prefix_cache && !model.cache().whole_sequences,
      .grammar_work = options_.grammar_work,
      .speculator = speculator_.get(),
      .store = stored_.store()});
}

std::unique_ptr<Speculator> Engine::MakeSpeculator() const {
  std::unique_ptr<ModelDrafter> draft;
  if (Model* model = model_->draft()) {
    draft = std::make_unique<DraftModel>(&model->language_model(), &cancellation_->flag());
  } else if (LanguageModel& own = model_->language_model(); own.has_mtp()) {
    draft = std::make_unique<MtpDrafter>(&own, &cancellation_->flag());
  }
  return std::make_unique<Speculator>(std::make_unique<PromptLookup>(), std::move(draft));
}

// Ends, with an error, all that has been taken, without an allocation: a sequence that goes
// finishes its request. So do questions about the cache, which goes with it.
void Engine::DropScheduled() noexcept {
  {
    absl::MutexLock lock(&mutex_);
    int64_t lost = static_cast<int64_t>(finished_.size());
    if (scheduler_ != nullptr) lost += scheduler_->num_running() + scheduler_->num_waiting();
    stats_.requests += lost;
    stats_.failed += lost;
    num_waiting_ = 0;
  }
  finished_.clear();
  stored_.DrainLoads();  // into blocks of the sequences that go
  scheduler_ = nullptr;
  for (;;) {
    std::shared_ptr<CacheInspection> inspection;
    {
      absl::MutexLock lock(&mutex_);
      if (inspections_.empty()) return;
      inspection = std::move(inspections_.front());
      inspections_.pop_front();
    }
    inspection->Finish(OutOfMemory());
  }
}

// Likewise all that has not been taken yet.
void Engine::DropQueued() noexcept {
  for (;;) {
    std::shared_ptr<Request> request;
    {
      absl::MutexLock lock(&mutex_);
      if (incoming_.empty()) return;
      request = std::move(incoming_.front());
      incoming_.pop_front();
      ++stats_.requests;
      ++stats_.failed;
    }
    Generation lost;
    lost.status = OutOfMemory();
    request->Finish(std::move(lost));
  }
}

// An allocation failed somewhere. What was under way fails, and the cache begins again with
// nothing. What has come since is begun once more; where memory fails again at once, or for that,
// nobody waits until there is some: requests fail until then.
void Engine::Recover() noexcept {
  DropScheduled();
  for (bool again = std::exchange(recovered_, true);; again = true) {
    if (again) DropQueued();
    try {
      speculator_ = MakeSpeculator();
      scheduler_ = MakeScheduler();
      scheduler_->DistrustBlocks();
      ops_failed_ = false;  // nobody runs
      ReportQueue();
      return;
    } catch (...) {
      scheduler_ = nullptr;
    }
    absl::MutexLock lock(&mutex_);
    auto wanted = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return stopping_ || !incoming_.empty() || !inspections_.empty();
    };
    mutex_.AwaitWithTimeout(absl::Condition(&wanted), absl::Milliseconds(10));
    if (stopping_) return;
  }
}

}  // namespace lm
