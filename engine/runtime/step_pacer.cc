#include "engine/runtime/step_pacer.h"

#include <algorithm>

namespace lm {
namespace {

// A mean that forgets: it follows a change within a dozen steps.
void Follow(double value, double* mean) {
  constexpr double kShare = 0.2;
  *mean = *mean == 0 ? value : *mean + kShare * (value - *mean);
}

}  // namespace

void StepPacer::Record(int32_t prompt_tokens, absl::Duration took) {
  const double seconds = absl::ToDoubleSeconds(took);
  if (prompt_tokens == 0) {
    Follow(seconds, &decode_seconds_);
  } else if (prompt_tokens >= kLeast) {  // fewer say more about the rest of the step
    Follow(std::max(seconds - decode_seconds_, 0.1 * seconds) / prompt_tokens, &token_seconds_);
  }
}

int32_t StepPacer::PromptTokens(absl::Duration target, int32_t most) const {
  if (target == absl::InfiniteDuration() || token_seconds_ == 0) return most;
  const double room = (absl::ToDoubleSeconds(target) - decode_seconds_) / token_seconds_;
  const double least = std::min(kLeast, most);
  return static_cast<int32_t>(std::clamp(room, least, static_cast<double>(most)));
}

}  // namespace lm
