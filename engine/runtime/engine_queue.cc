// Steps one behind the other. Where a model's device has a queue, the next step begins before it is
// known what this one samples: so the device does not wait for the host, which reads tokens, ends
// answers and follows grammars meanwhile.
//
//   step n      |--- tokens ---|- pick -|
//   step n + 1                          |--- tokens ---|- pick -|
//   host                  Begin(n + 1)   Await(n), Advance, Pick(n + 1), Begin(n + 2), ...
//
// A step that has begun so computes the token behind each sequence's last one, whatever that will
// be, and nothing else: of sequences that have ended meanwhile it was in vain. What is sampled in
// it is known when the step before has been read, so it is sampled by the same as ever.
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "engine/base/status_macros.h"
#include "engine/runtime/engine.h"

namespace lm {

// Whether there is nothing else to do than to go on with the sequences of the plan.
bool Engine::MayFollow(StepPlan* plan) const {
  if (!model_->language_model().queues_steps()) return false;
  if (cancellation_->num_cancels() != cancels_seen_ || look_for_abandoned_) return false;
  if (raises_->load(std::memory_order_acquire) != raises_seen_) return false;
  {
    absl::MutexLock lock(&mutex_);
    if (stopping_ || loaded_ || !incoming_.empty() || !inspections_.empty()) return false;
  }
  return scheduler_->MayFollow(MakeStepLimits(), plan);
}

// Carries out a plan that others may follow, and those, until there is something else to do.
void Engine::RunQueue(StepPlan plan) {
  absl::Time start = absl::Now();
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
    const absl::Time end = absl::Now();
    step_took_ = end - start;
    for (const StepEntry& e : plan.entries) e.sequence->EndShare(end);
    if (!status.ok()) return Fail(plan, status);
    if (plan.entries.empty()) return;  // it was all in vain
    RecordStep(plan, work, end - start);
    const bool has_next = !next.entries.empty() && begun.ok();
    {
      const absl::Cleanup forget = [this] { behind_ = nullptr; };
      behind_ = &next;
      Advance(plan, end);
      if (has_next) FollowGrammars();
    }
    const bool has_room = !finished_.empty();
    if (has_next) scheduler_->Confirm(results_.tokens, results_.late, &next);
    Deliver();
    if (!begun.ok()) return Fail(next, begun);
    if (!has_next) return;
    plan = std::move(next);
    start = end;
    // Who waits gets what somebody has left.
    follows =
        !plan.entries.empty() && !(has_room && scheduler_->num_waiting() > 0) && MayFollow(&plan);
  }
}

// Puts the plan's cache operations and tokens into the queue, behind a step in which so many are
// picked.
absl::Status Engine::BeginStep(StepPlan* plan, size_t num_picked) {
  LanguageModel& model = model_->language_model();
  ModelStep step;
  step.cache_ops = plan->cache_ops;
  step.tables.blocks.resize(model.cache().classes.size());
  step.tables.num_picked = static_cast<int32_t>(num_picked);
  std::vector<int32_t> tokens;
  for (StepEntry& entry : plan->entries) {
    const Sequence& sequence = *entry.sequence;
    const auto begin = static_cast<int32_t>(step.tables.tokens.size());
    const int32_t known = entry.num_tokens - (entry.sampled >= 0 ? 1 : 0);
    const auto first = sequence.tokens().begin() + entry.first;
    tokens.assign(first, first + known);
    if (entry.sampled >= 0) tokens.push_back(~entry.sampled);
    step.tables.Append(tokens.data(), entry.num_tokens, entry.first, /*state=*/-1);
    AppendBlocks(sequence.block_table(), entry.first + entry.num_tokens, &step.tables);
    const auto end = static_cast<int32_t>(step.tables.tokens.size());
    AppendAdapted(begin, end, sequence.request().spec().adapters, &step.adapted);
    entry.row = end - 1;
    step.samples.push_back({.row = entry.row});
  }
  const absl::Status status = model.Begin(std::move(step));
  if (!status.ok()) DistrustBlocks();
  return status;
}

// Has tokens picked in the step that has begun; how many.
absl::StatusOr<size_t> Engine::PickInStep(const StepPlan& plan) {
  BeginShares(plan, absl::Now());
  std::vector<SamplingRow> samples;
  for (const StepEntry& entry : plan.entries) {
    if (!entry.samples) continue;
    absl::StatusOr<SamplingRow> sample = entry.sequence->NextSample();
    if (!sample.ok()) continue;  // Advance reports it
    sample->row = entry.row;
    samples.push_back(*sample);
  }
  const size_t count = samples.size();
  RETURN_IF_ERROR(model_->language_model().Pick(std::move(samples), WantedLogits(plan)));
  return count;
}

absl::Status Engine::AwaitStep(const StepPlan& plan) {
  const BatchCancellation::Step step(cancellation_.get(), RequestsOf(plan));
  return model_->language_model().Await(cancellation_->flag(), &results_);
}

}  // namespace lm
