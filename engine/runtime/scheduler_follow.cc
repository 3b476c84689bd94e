// Steps that begin before the one before them has been read (engine_queue.cc): when, and of what.
#include <algorithm>
#include <cassert>
#include <unordered_map>
#include <utility>

#include "engine/runtime/scheduler.h"
#include "engine/runtime/scheduler_step.h"

namespace lm {

// Whether all running sequences decode, and are likely to go on. Where one ends in this step, its
// place is filled a step later, and where all end, the step that has begun is in vain: of long
// answers that is little.
bool Scheduler::AnswersGoOn() const {
  constexpr int64_t kLongAnswer = 8;  // tokens so far, of answers that have as many to come
  constexpr int64_t kFewRows = 4;     // that may well all end at once
  int64_t answered = 0;
  for (const auto& sequence : running_) {
    if (!sequence->decoding() || sequence->scoring() || sequence->embedding()) return false;
    if (sequence->will_read_logits()) return false;  // on the host, before the next step
    if (sequence->ends_with_next() && batch_waiting_.size() > 0) return false;
    answered += sequence->answer_tokens();
  }
  const auto rows = static_cast<int64_t>(running_.size());
  const bool may_be_in_vain = rows < kFewRows || batch_waiting_.size() > 0;
  return !may_be_in_vain || answered >= rows * kLongAnswer;
}

// Whether the speculator would have sequences of the plan guess tokens.
bool Scheduler::WouldGuess(const StepLimits& limits, StepPlan* plan) const {
  Step step;
  step.budget = options_.step_tokens;
  step.interactive = HasInteractive();
  step.plan = std::move(*plan);
  for (const StepEntry& entry : step.plan.entries) step.Count(entry, 1);
  const Guessing guessing = FindGuessing(limits, &step);
  *plan = std::move(step.plan);
  return options_.speculator->WouldGuess(guessing.rows, guessing.limits);
}

bool Scheduler::MayFollow(const StepLimits& limits, StepPlan* plan) const {
  // Of sampled rows: those that so need a step more outweigh what the others gain.
  constexpr double kMostMissed = 0.05;
  if (interactive_waiting_.size() > 0 || !loading_.empty() || !plan->loads.empty()) return false;
  if (num_following() > 0 || HasBatchBesideInteractive()) return false;
  if (running_.empty() || missed_share_ > kMostMissed || !AnswersGoOn()) return false;
  for (const auto& sequence : running_) {
    if (sequence->request().spec().options.speculate == Speculate::kAlways) return false;
  }
  for (const StepEntry& entry : plan->entries) {
    if (!entry.decode || entry.num_guessed > 0) return false;
  }
  if (options_.speculator == nullptr) return true;
  if (options_.speculator->asks_model()) return false;
  // A plan that Schedule made has had the speculator guess what it would.
  return !plan->follows || !WouldGuess(limits, plan);
}

void Scheduler::RecordMissed(int64_t rows, int64_t missed) {
  constexpr double kOfLate = 0.1;
  if (rows == 0) return;
  const double share = static_cast<double>(missed) / static_cast<double>(rows);
  missed_share_ += kOfLate * (share - missed_share_);
}

StepPlan Scheduler::Follow(const StepPlan& plan) {
  // Of each sequence in the plan: its entry, and the number of its sample; -1: none.
  std::unordered_map<const Sequence*, std::pair<const StepEntry*, int32_t>> planned;
  int32_t num_sampled = 0;
  for (const StepEntry& entry : plan.entries) {
    planned[entry.sequence] = {&entry, entry.samples ? num_sampled++ : -1};
  }
  StepPlan next;
  next.follows = true;
  int32_t budget = options_.step_tokens;
  for (const auto& owned : running_) {
    Sequence* sequence = owned.get();
    StepEntry entry{
        .sequence = sequence, .first = sequence->computed(), .decode = true, .samples = true};
    if (const auto before = planned.find(sequence); before != planned.end()) {
      entry.first += before->second.first->num_tokens;
      entry.sampled = before->second.second;
    }
    if (entry.sampled >= 0 && sequence->ends_with_next()) continue;
    // The tokens that are known and not computed, and the one that the step before samples.
    const auto known = static_cast<int32_t>(sequence->tokens().size());
    entry.num_tokens = known - entry.first + (entry.sampled >= 0 ? 1 : 0);
    if (entry.num_tokens <= 0 || entry.num_tokens > std::min(budget, most_tokens_)) return {};
    if (entry.sampled < 0 && !IsReady(sequence)) return {};
    if (!blocks_.Grow(sequence->salt(), entry.first + entry.num_tokens, &sequence->block_table())) {
      return {};
    }
    budget -= entry.num_tokens;
    next.entries.push_back(entry);
  }
  if (next.entries.empty()) return {};
  for (const StepEntry& entry : next.entries) entry.sequence->set_last_planned(++planned_);
  PutAdaptersTogether(&next);
  next.cache_ops = blocks_.TakeOps();
  return next;
}

void Scheduler::Confirm(absl::Span<const absl::StatusOr<int32_t>> sampled,
                        const std::vector<bool>& late, StepPlan* plan) {
  std::erase_if(plan->entries, [&](StepEntry& entry) {
    Sequence* sequence = entry.sequence;
    const auto end = static_cast<size_t>(entry.first) + entry.num_tokens;
    assert(sequence->computed() == entry.first);
    if (sequence->tokens().size() < end) return true;  // the sampled token waits for its grammar
    if (const int32_t i = entry.sampled; i >= 0) {
      if (late[i] || !sampled[i].ok() || *sampled[i] != sequence->tokens()[end - 1]) return true;
    }
    entry.samples = sequence->remaining() == entry.num_tokens;
    return entry.samples && !IsReady(sequence);
  });
}

}  // namespace lm
