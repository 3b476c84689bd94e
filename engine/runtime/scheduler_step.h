// Scheduler::Step: a plan while the scheduler makes it, and what the step has left.
#ifndef LM_ENGINE_RUNTIME_SCHEDULER_STEP_H_
#define LM_ENGINE_RUNTIME_SCHEDULER_STEP_H_

#include <algorithm>
#include <cstdint>
#include <limits>

#include "engine/runtime/scheduler.h"

namespace lm {

struct Scheduler::Step {
  StepPlan plan;
  int32_t budget = 0;  // tokens that the step has left
  int32_t kept = 0;    // for batch prompts, beside them while interactive ones are planned
  // Those of them that prompts may have.
  int32_t prompt_limit = std::numeric_limits<int32_t>::max();
  int32_t scored_rows = 0;     // planned
  int32_t prompt_tokens = 0;   // planned
  int32_t decode_tokens = 0;   // planned
  int32_t batch_rows = 0;      // planned: batch sequences that decode
  int64_t planned_before = 0;  // planned_ when the step began
  bool interactive = false;    // there are interactive sequences, planned or not

  int32_t prompt_budget() const { return std::min(budget, prompt_limit); }

  // Whether the sequence has been planned in this step.
  bool HasPlanned(const Sequence& sequence) const {
    return sequence.last_planned() > planned_before;
  }

  // Counts what an entry takes; with `sign` -1, takes that back.
  void Count(const StepEntry& entry, int32_t sign) {
    budget -= sign * entry.num_tokens;
    if (!entry.decode) prompt_limit -= sign * entry.num_tokens;
    (entry.decode ? decode_tokens : prompt_tokens) += sign * entry.num_tokens;
    if (entry.decode && !entry.sequence->interactive()) batch_rows += sign;
    if (entry.sequence->scoring()) scored_rows += sign * entry.num_tokens;
  }
};

}  // namespace lm

#endif  // LM_ENGINE_RUNTIME_SCHEDULER_STEP_H_
