#include "engine/runtime/step_plan.h"

#include <algorithm>
#include "engine/base/monotonic_time.h"

namespace lm {

StepTokens CountTokens(const StepPlan& plan) {
  StepTokens tokens;
  for (const StepEntry& entry : plan.entries) {
    (entry.decode ? tokens.decoded : tokens.prefilled) += entry.num_tokens;
    if (!entry.decode) tokens.guessed += entry.num_guessed;
    tokens.rows += entry.decode;
  }
  return tokens;
}

void PutAdaptersTogether(StepPlan* plan) {
  std::stable_sort(
      plan->entries.begin(), plan->entries.end(), [](const StepEntry& a, const StepEntry& b) {
        return a.sequence->request().spec().adapters < b.sequence->request().spec().adapters;
      });
}

std::vector<const Request*> RequestsOf(const StepPlan& plan) {
  std::vector<const Request*> requests;
  for (const StepEntry& entry : plan.entries) requests.push_back(&entry.sequence->request());
  return requests;
}

void BeginShares(const StepPlan& plan, MonotonicTime now) {
  int32_t tokens = 0;
  for (const StepEntry& entry : plan.entries) tokens += entry.num_tokens;
  for (const StepEntry& e : plan.entries) e.sequence->BeginShare(e.num_tokens, tokens, now);
}

void EndShares(const StepPlan& plan, MonotonicTime now) {
  for (const StepEntry& entry : plan.entries) entry.sequence->EndShare(now);
}

}  // namespace lm
