// The scheduler's guesses: which of the planned sequences may guess tokens, and how many.
#include <algorithm>
#include <limits>

#include "engine/runtime/scheduler.h"
#include "engine/runtime/scheduler_step.h"

namespace lm {
namespace {

// The most tokens that a recurrent sequence may have to compute in a step in which it guesses. A
// guess that is not right as a whole has the tokens that were right computed again: without a limit
// the sequence might go back to the same state for ever.
constexpr int32_t kMostAgain = 8;

}  // namespace

// Whether a sequence of the step may guess tokens, as far as its entry goes.
bool Scheduler::MayGuess(const StepEntry& entry) const {
  const Sequence& sequence = *entry.sequence;
  if (!entry.samples || !sequence.AllowedTokens().ok()) return false;
  if (sequence.request().spec().options.speculate == Speculate::kOff) return false;
  // A snapshot, which may be taken at the end of a prompt, is of a state that has seen no guess.
  return !options_.cache.recurrent() || (entry.decode && entry.num_tokens <= kMostAgain);
}

// Which sequences of the plan may guess tokens, and how many. Drops all guesses of before.
Scheduler::Guessing Scheduler::FindGuessing(const StepLimits& step_limits, Step* step) const {
  Guessing guessing;
  Speculator::Limits& limits = guessing.limits;
  limits = {.tokens = std::min(step->budget, options_.max_logit_rows - step->scored_rows),
            .step_tokens = step->decode_tokens + step->prompt_tokens,
            .prompts = step->prompt_tokens > 0,
            .prompt_seconds = step_limits.token_seconds,
            .rewinds = options_.cache.recurrent()};
  std::vector<StepEntry*> by_priority;
  for (StepEntry& entry : step->plan.entries) by_priority.push_back(&entry);
  std::stable_partition(by_priority.begin(), by_priority.end(),
                        [](const StepEntry* e) { return e->sequence->interactive(); });
  // Beside interactive rows, batch rows share what the step has left of its time.
  const int32_t most_tokens =
      step->interactive ? step_limits.interactive_decode : std::numeric_limits<int32_t>::max();
  const int32_t room = std::max(most_tokens - limits.step_tokens, 0);
  const int32_t most_of_batch = room / std::max(step->batch_rows, 1);
  for (StepEntry* planned : by_priority) {
    StepEntry& entry = *planned;
    Sequence* sequence = entry.sequence;
    sequence->DropGuess();
    if (!MayGuess(entry) || (!sequence->interactive() && most_of_batch <= 0)) continue;
    int32_t most = most_tokens_ - entry.num_tokens;
    if (!sequence->interactive()) most = std::min(most, most_of_batch);
    entry.speculator_row = static_cast<int32_t>(guessing.rows.size());
    guessing.rows.push_back({.sequence = sequence, .most = most});
    guessing.entries.push_back(&entry);
  }
  return guessing;
}

// Has sequences of the plan guess tokens, as many as the step has room for.
void Scheduler::PlanGuesses(const StepLimits& limits, Step* step) {
  const Guessing guessing = FindGuessing(limits, step);
  if (guessing.rows.empty()) return;
  std::vector<CacheOp>& cache_ops = step->plan.cache_ops;
  options_.speculator->Guess(guessing.rows, guessing.limits, &cache_ops, &grammar_work_);
  for (StepEntry* entry : guessing.entries) {
    Sequence* sequence = entry->sequence;
    const int32_t guessed = sequence->num_guessed();
    if (guessed == 0) continue;
    const int32_t tokens = entry->num_tokens + guessed;
    BlockTable& table = sequence->block_table();
    if (!blocks_.Grow(sequence->salt(), sequence->computed() + tokens, &table) ||
        (options_.cache.recurrent() && !blocks_.SetAside(&table))) {
      sequence->DropGuess();
      continue;
    }
    entry->num_tokens = tokens;
    entry->num_guessed = guessed;
  }
  const std::vector<CacheOp> more = blocks_.TakeOps();
  cache_ops.insert(cache_ops.end(), more.begin(), more.end());
}

}  // namespace lm
