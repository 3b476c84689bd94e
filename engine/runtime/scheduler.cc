#include "engine/runtime/scheduler.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "engine/backend/backend.h"

namespace lm {

struct Scheduler::Step {
  StepPlan plan;
  int32_t budget = 0;  // tokens
  int32_t scored_rows = 0;
};

Scheduler::Scheduler(const SchedulerOptions& options)
    : options_(options), blocks_(options.num_blocks, options.prefix_cache) {}

void Scheduler::Add(std::unique_ptr<Sequence> sequence) {
  assert(sequence->remaining() > 0);
  waiting_.PushBack(std::move(sequence));
}

StepPlan Scheduler::Schedule() {
  Step step;
  step.budget = options_.step_tokens;
  PlanDecodes(&step);
  PlanPrompts(&step);
  AdmitWaiting(&step);
  step.plan.block_ops = blocks_.TakeOps();
  return std::move(step.plan);
}

// Planning may preempt, which takes sequences off the end of running_ (the planned one included).
void Scheduler::PlanDecodes(Step* step) {
  for (size_t i = 0; i < running_.size() && step->budget > 0; ++i) {
    Sequence* sequence = running_[i].get();
    if (sequence->decoding()) Plan(sequence, sequence->remaining(), step);
  }
}

void Scheduler::PlanPrompts(Step* step) {
  for (size_t i = 0; i < running_.size() && step->budget > 0; ++i) {
    Sequence* sequence = running_[i].get();
    if (!sequence->decoding()) Plan(sequence, sequence->remaining(), step);
  }
}

void Scheduler::AdmitWaiting(Step* step) {
  const size_t most = std::min(options_.max_sequences, options_.step_tokens);
  waiting_.BeginScan();
  while (step->budget > 0 && running_.size() < most) {
    std::unique_ptr<Sequence> next =
        waiting_.TakeNext([this](const Sequence& s) { return !MustWait(s); });
    if (next == nullptr) return;
    if (!Admit(next.get(), step)) {
      // Nobody may overtake: else a long prompt would wait for memory for ever.
      waiting_.PushFront(std::move(next));
      return;
    }
    Sequence* sequence = next.get();
    running_.push_back(std::move(next));
    if (!Plan(sequence, sequence->remaining(), step)) return;
  }
}

// Plans up to `num_tokens` tokens of a running sequence. False where it had to be preempted itself.
bool Scheduler::Plan(Sequence* sequence, int32_t num_tokens, Step* step) {
  num_tokens = std::min(num_tokens, step->budget);
  if (sequence->scoring()) {
    num_tokens = std::min(num_tokens, options_.max_scored_rows - step->scored_rows);
    if (num_tokens == 0) return true;
    step->scored_rows += num_tokens;
  }
  while (!blocks_.Grow(sequence->salt(), sequence->computed() + num_tokens,
                       &sequence->block_table())) {
    Sequence* last = running_.back().get();
    Preempt(last, step);
    if (last == sequence) return false;
  }
  StepEntry entry{.sequence = sequence, .num_tokens = num_tokens, .decode = sequence->decoding()};
  entry.num_logits =
      sequence->scoring() ? num_tokens : static_cast<int32_t>(num_tokens == sequence->remaining());
  step->budget -= num_tokens;
  step->plan.entries.push_back(entry);
  return true;
}

// Whether a running sequence is computing a prefix that this one had better wait for.
bool Scheduler::MustWait(const Sequence& sequence) const {
  if (!options_.prefix_cache || sequence.scoring()) return false;
  const absl::Span<const int32_t> tokens =
      sequence.tokens().subspan(0, sequence.tokens().size() - 1);
  int64_t longest = 0;
  for (const auto& other : running_) {
    if (other->decoding() || other->scoring() || other->salt() != sequence.salt()) continue;
    const absl::Span<const int32_t> theirs = other->tokens();
    const auto parting = std::mismatch(tokens.begin(), tokens.end(), theirs.begin(), theirs.end());
    longest = std::max<int64_t>(longest, parting.first - tokens.begin());
  }
  if (longest < kLeastHeldPrefix) return false;
  return longest - blocks_.MatchLength(sequence.salt(), tokens) >= kLeastHeldPrefix;
}

// Gives a waiting sequence its cached prefix, provided that there is memory for all of it: its
// tokens and one more, what running prompts still need, and a block each for them to grow.
bool Scheduler::Admit(Sequence* sequence, Step* step) {
  const int64_t num_tokens = static_cast<int64_t>(sequence->tokens().size());
  BlockTable& table = sequence->block_table();
  const int64_t limit = sequence->scoring() ? 0 : num_tokens - 1;
  const int64_t matched = blocks_.Match(sequence->salt(), sequence->tokens(), limit, &table);
  int64_t needed = BlocksFor(num_tokens + 1) - matched / kKvBlockTokens;
  for (const auto& other : running_) {
    const int64_t wanted = BlocksFor(static_cast<int64_t>(other->tokens().size()) + 1) -
                           static_cast<int64_t>(other->block_table().blocks.size());
    needed += std::max<int64_t>(wanted, 0) + 1;
  }
  if (!running_.empty() && AvailableBlocks() < needed) {
    blocks_.Release(&table);
    return false;
  }
  const int64_t cached = blocks_.Adopt(sequence->salt(), &table);
  sequence->set_computed(static_cast<int32_t>(cached));
  sequence->OnAdmitted(static_cast<int32_t>(cached), absl::Now());
  step->plan.tokens_reused += cached;
  return true;
}

// Blocks that Grow could get without preempting anybody.
int64_t Scheduler::AvailableBlocks() const {
  int64_t available = blocks_.num_free() + blocks_.num_evictable();
  for (const auto& sequence : running_) available -= blocks_.SharesTail(sequence->block_table());
  return available;
}

void Scheduler::Preempt(Sequence* sequence, Step* step) {
  assert(running_.back().get() == sequence);
  std::erase_if(step->plan.entries,
                [sequence](const StepEntry& e) { return e.sequence == sequence; });
  blocks_.Release(&sequence->block_table());
  sequence->OnPreempted();
  waiting_.PushFront(std::move(running_.back()));
  running_.pop_back();
  ++step->plan.preemptions;
}

void Scheduler::Commit(const StepEntry& entry) {
  Sequence* sequence = entry.sequence;
  const int32_t before = sequence->computed();
  sequence->set_computed(before + entry.num_tokens);
  if (sequence->scoring()) return;
  // At the end of a prompt the begun block too, for prompts that part in it. While decoding, only
  // what has become full: rarely.
  const bool prompt_ends = !entry.decode && sequence->remaining() == 0;
  if (prompt_ends || before / kKvBlockTokens != sequence->computed() / kKvBlockTokens) {
    blocks_.Publish(sequence->salt(), sequence->tokens().subspan(0, sequence->computed()),
                    prompt_ends, &sequence->block_table());
  }
}

std::unique_ptr<Sequence> Scheduler::Finish(Sequence* sequence, bool keep) {
  const auto position =
      std::find_if(running_.begin(), running_.end(),
                   [sequence](const auto& running) { return running.get() == sequence; });
  assert(position != running_.end());
  std::unique_ptr<Sequence> finished = std::move(*position);
  running_.erase(position);
  if (keep && !sequence->scoring()) {
    blocks_.Publish(sequence->salt(), sequence->tokens().subspan(0, sequence->computed()),
                    /*partial=*/true, &sequence->block_table());
  }
  blocks_.Release(&sequence->block_table());
  return finished;
}

std::vector<std::unique_ptr<Sequence>> Scheduler::TakeIf(
    absl::FunctionRef<bool(const Sequence&)> condition) {
  std::vector<std::unique_ptr<Sequence>> taken = waiting_.TakeIf(condition);
  std::vector<Sequence*> doomed;
  for (const auto& sequence : running_) {
    if (condition(*sequence)) doomed.push_back(sequence.get());
  }
  for (Sequence* sequence : doomed) taken.push_back(Finish(sequence, /*keep=*/false));
  return taken;
}

absl::Status Scheduler::CheckIntegrity() const {
  std::vector<const BlockTable*> tables;
  for (const auto& sequence : running_) tables.push_back(&sequence->block_table());
  return blocks_.CheckIntegrity(tables);
}

}  // namespace lm
