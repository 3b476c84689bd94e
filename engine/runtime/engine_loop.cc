// The loop of the engine's thread: what is between two steps.
#include <algorithm>
#include <optional>
#include <utility>

#include "engine/base/exit_guard.h"
#include "engine/base/monotonic_time.h"
#include "engine/base/out_of_memory.h"
#include "engine/runtime/adapter_text.h"
#include "engine/runtime/engine.h"

namespace lm {

void Engine::Run() {
  ExitGuard guard([](void* engine) { static_cast<Engine*>(engine)->AskToStop(); }, this);
  if (!guard.allowed()) AskToStop();
  ReadyToThrow();
  while (WaitForWork()) {
    try {
      AnswerInspections();
      EndLoads();
      TakeIncoming();
      Step();
      ForgetSalts();
      LayOutMore();
      KeepWeights();
      recovered_ = false;
    } catch (...) {  // there is no memory; the process is the host's, and must live
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

bool Engine::HasNews() const {
  return stopping_ || loaded_ || !incoming_.empty() || !inspections_.empty() || !forgotten_.empty();
}

bool Engine::WaitForWork() {
  absl::MutexLock lock(&mutex_);
  const absl::Condition has_news(this, &Engine::HasNews);
  if (scheduler_ != nullptr && scheduler_->idle()) {
    const MonotonicTime layout =
        weight_layout_.left() ? weight_layout_.again() : MonotonicTime::InfiniteFuture();
    news_.AwaitUntil(mutex_, has_news, std::min(layout, keep_again_));
  } else if (only_loads_) {  // meanwhile a waiting request may be abandoned, which is no news
    news_.AwaitFor(mutex_, has_news, absl::Milliseconds(20));
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
    // If it was abandoned in incoming_, DropAbandoned may have seen that it was, and not found it.
    look_for_abandoned_ = look_for_abandoned_ || sequence->request().abandoned();
    if (const std::optional<FinishReason> end = sequence->trivial_end()) {
      Generation result = sequence->TakeResult(*end, MonotonicTime::Now());
      Finish(std::move(sequence), std::move(result));
    } else {
      scheduler_->Add(std::move(sequence));
    }
  }
}

// Schedules a step, runs the model over it, samples, and delivers the answers that have ended.
void Engine::Step() {
  DropAbandoned();
  MoveRaised();
  FollowGrammars();
  StepPlan plan = scheduler_->Schedule(MakeStepLimits());
  ReportQueue();
  const absl::Status begun = plan.loads.empty() ? absl::OkStatus() : BeginLoads(&plan);
  only_loads_ =
      plan.entries.empty() && scheduler_->num_loading() > 0 && scheduler_->num_following() == 0;
  if (!begun.ok()) {
    Fail(plan, begun);
  } else if (plan.entries.empty()) {
    if (!only_loads_ && !scheduler_->idle() && scheduler_->num_following() == 0) {
      FailAll(absl::InternalError("the scheduler found nothing to do although requests wait"));
    }
  } else if (MayFollow(&plan)) {
    RunQueue(std::move(plan));
  } else {
    RunAlone(plan);
  }
  Deliver();
}

// Begins the plan's loads, after its cache operations: only then may they write into their blocks.
absl::Status Engine::BeginLoads(StepPlan* plan) {
  ModelStep step;
  step.cache_ops = std::exchange(plan->cache_ops, {});
  step.tables.blocks.resize(model_->language_model().cache().classes.size());
  const absl::Status status = step.cache_ops.empty() ? absl::OkStatus() : RunModel(std::move(step));
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

// Behind the step that has dropped their last requests.
void Engine::ForgetSalts() {
  std::vector<std::string> salts;
  {
    absl::MutexLock lock(&mutex_);
    salts.swap(forgotten_);
  }
  for (const std::string& salt : salts) {
    scheduler_->Forget(salt);
    speculator_->Forget(salt);
  }
}

void Engine::LayOutMore() {
  if (!weight_layout_.left()) return;
  const bool idle = scheduler_->idle() || only_loads_;
  auto interrupted = [this] {
    absl::MutexLock lock(&mutex_);
    return HasNews() || cancellation_->num_cancels() != cancels_seen_;
  };
  auto laid_out = [this](bool more) {
    absl::MutexLock lock(&mutex_);
    counts_.SetLaidOut(more);
  };
  const absl::Status lost = weight_layout_.Go(idle, interrupted, laid_out);
  if (lost.ok()) return;
  LoseModel(lost);
  Deliver();
}

void Engine::KeepWeights() {
  constexpr absl::Duration kEach = absl::Seconds(2);  // and steps themselves look
  const MonotonicTime now = MonotonicTime::Now();
  if (now < keep_again_) return;
  keep_again_ = now + kEach;
  absl::StatusOr<bool> again = model_->language_model().KeepWeights();
  if (again.ok() && model_->draft() != nullptr) {
    const absl::StatusOr<bool> draft = model_->draft()->language_model().KeepWeights();
    again = draft.ok() ? *again || *draft : draft;
  }
  if (!again.ok() || !*again) keep_again_ = MonotonicTime::InfiniteFuture();
  if (again.ok()) return;
  LoseModel(again.status());
  Deliver();
}

// Ends the sequences whose requests have been cancelled, or are out of time.
void Engine::DropAbandoned() {
  const uint64_t cancels = cancellation_->num_cancels();
  if (cancels == cancels_seen_ && !look_for_abandoned_) return;
  cancels_seen_ = cancels;
  look_for_abandoned_ = false;
  const MonotonicTime now = MonotonicTime::Now();
  auto dropped =
      scheduler_->TakeIf([](const Sequence& sequence) { return sequence.request().abandoned(); });
  for (std::unique_ptr<Sequence>& sequence : dropped) {
    Generation result = sequence->TakeError(sequence->request().AbandonedStatus(), now);
    Finish(std::move(sequence), std::move(result));
  }
}

// Moves sequences whose requests were raised after TakeIncoming made them; a later one has the
// request's priority at once.
void Engine::MoveRaised() {
  const uint64_t raises = raises_->load(std::memory_order_acquire);
  if (raises == raises_seen_) return;
  raises_seen_ = raises;
  scheduler_->MoveRaised();
}

// Gives sequences that wait for their grammars a turn.
void Engine::FollowGrammars() {
  const std::vector<Scheduler::FollowedToEnd> ended = scheduler_->FollowGrammars();
  if (ended.empty()) return;
  const MonotonicTime now = MonotonicTime::Now();
  for (const auto& [sequence, end] : ended) EndSequence(sequence, end, now);
}

void Engine::ReportQueue() {
  absl::MutexLock lock(&mutex_);
  num_waiting_ = scheduler_->num_waiting();
  counts_.SetScheduled(*scheduler_);
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

}  // namespace lm
