// Steps one behind the other. Where a model's device has a queue, the next step begins before it is
// known what this step samples: so the device does not wait for the host, which reads tokens, ends
// answers and follows grammars meanwhile.
//
//   step n      |--- tokens ---|- pick -|
//   step n + 1                          |--- tokens ---|- pick -|
//   host                  Begin(n + 1)   Await(n), Advance, Pick(n + 1), Begin(n + 2), ...
//
// A step that has begun early computes the token that the step before samples for each sequence,
// whichever that will be, and no other; for a sequence that has ended meanwhile it was in vain. How
// its own tokens are to be sampled is said (Pick) once the step before has been read: by the same
// tokens and grammar as in a step that did not begin early.
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "engine/base/monotonic_time.h"
#include "engine/base/status_macros.h"
#include "engine/runtime/engine.h"
#include "engine/runtime/make_model_step.h"

namespace lm {

// Whether there is nothing else to do than to go on with the sequences of the plan.
bool Engine::MayFollow(StepPlan* plan) const {
  if (!model_->language_model().queues_steps()) return false;
  if (cancellation_->num_cancels() != cancels_seen_ || look_for_abandoned_) return false;
  if (raises_->load(std::memory_order_acquire) != raises_seen_) return false;
  {
    absl::MutexLock lock(&mutex_);
    if (HasNews()) return false;
  }
  return scheduler_->MayFollow(MakeStepLimits(), plan);
}

// Carries out a plan, and the plans that follow it, until there is something else to do.
void Engine::RunQueue(StepPlan plan) {
  MonotonicTime start = MonotonicTime::Now();
  absl::Status status = BeginStep(&plan, /*num_picked=*/0);
  if (!status.ok()) return Fail(plan, status);
  for (bool follows = true;;) {
    const absl::StatusOr<size_t> picked = PickInStep(plan);
    if (!picked.ok()) return Fail(plan, picked.status());
    const auto num_samples = static_cast<size_t>(std::count_if(
        plan.entries.begin(), plan.entries.end(), [](const StepEntry& e) { return e.samples; }));
    const StepWork work = work_meter_.Count(plan);
    StepPlan next;
    absl::Status begun;
    if (follows && *picked == num_samples) next = scheduler_->Follow(plan);
    if (!next.entries.empty()) begun = BeginStep(&next, *picked);
    status = AwaitStep(plan);
    const MonotonicTime end = MonotonicTime::Now();
    weight_layout_.OnStep(end - start);
    EndShares(plan, end);
    if (!status.ok()) return Fail(plan, status);
    if (plan.entries.empty()) return;  // all its sequences have ended
    RecordStep(plan, work, end - start);
    const bool has_next = !next.entries.empty() && begun.ok();
    {
      const absl::Cleanup forget = [this] { behind_ = nullptr; };
      behind_ = &next;
      Advance(plan, end);
      if (has_next) FollowGrammars();
    }
    const bool has_room = !ended_.empty();
    if (has_next) scheduler_->Confirm(results_.tokens, results_.late, &next);
    Deliver();
    if (!begun.ok()) return Fail(next, begun);
    if (!has_next) return;
    plan = std::move(next);
    start = end;
    // A waiting sequence gets the place of one that has ended.
    follows =
        !plan.entries.empty() && !(has_room && scheduler_->num_waiting() > 0) && MayFollow(&plan);
  }
}

// Puts the plan's cache operations and tokens into the device's queue, behind a step in which
// `num_picked` tokens are picked.
absl::Status Engine::BeginStep(StepPlan* plan, size_t num_picked) {
  LanguageModel& model = model_->language_model();
  const absl::Status status = model.Begin(MakeQueuedStep(num_picked, model, plan));
  if (!status.ok()) DistrustBlocks();
  return status;
}

// Has tokens picked in the step that has begun. Returns their number.
absl::StatusOr<size_t> Engine::PickInStep(const StepPlan& plan) {
  BeginShares(plan, MonotonicTime::Now());
  LanguageModel& model = model_->language_model();
  std::vector<SamplingRow> samples = SamplesOf(plan);
  const size_t count = samples.size();
  RETURN_IF_ERROR(model.Pick(std::move(samples), WantedLogits(plan, model.vocab_size())));
  return count;
}

absl::Status Engine::AwaitStep(const StepPlan& plan) {
  const BatchCancellation::Step step(cancellation_.get(), RequestsOf(plan));
  return model_->language_model().Await(cancellation_->flag(), &results_);
}

}  // namespace lm
