#include "engine/runtime/step_costs.h"

#include <algorithm>
#include <cmath>

namespace lm {

void StepCosts::Record(int32_t tokens, absl::Duration took) {
  constexpr double kBaseShare = 0.2, kShapeShare = 0.05;
  const double seconds = absl::ToDoubleSeconds(took);
  if (tokens < 1 || tokens > kMostTokens || seconds <= 0) return;
  if (base_ == 0) base_ = seconds;
  Shape& shape = shape_[tokens];
  ++steps_;
  if (!IsKnown(tokens)) {
    const double now = seconds / base_;
    shape = {.value = shape.value > 0 ? std::min(shape.value, now) : now,
             .seen = shape.seen + 1,
             .last = steps_};
    return;
  }
  // A step that was held up says little.
  const double ratio = std::clamp(seconds / Seconds(tokens, 0), 0.5, 2.0);
  shape.value *= std::pow(ratio, std::max(1 / (shape.seen + 1), kShapeShare));
  base_ *= std::pow(ratio, kBaseShare);
  shape.seen += 1;
  shape.last = steps_;
}

double StepCosts::Seconds(int32_t tokens, double token_seconds) const {
  tokens = std::clamp(tokens, 1, kMostTokens);
  if (IsKnown(tokens)) return base_ * shape_[tokens].value;
  int32_t below = tokens - 1, above = tokens + 1;
  while (below > 0 && !IsKnown(below)) --below;
  while (above <= kMostTokens && !IsKnown(above)) ++above;
  if (below == 0 && above > kMostTokens) return 0;
  if (below == 0) {
    const double least = base_ * shape_[above].value;
    return std::max(least - (above - tokens) * token_seconds, least * tokens / above);
  }
  const double less = base_ * shape_[below].value;
  if (above > kMostTokens) return less + (tokens - below) * token_seconds;
  const double more = base_ * shape_[above].value;
  return less + (more - less) * (tokens - below) / (above - below);
}

std::optional<int32_t> StepCosts::TokensWithin(double seconds, double token_seconds) const {
  if (steps_ == 0) return std::nullopt;
  for (int32_t tokens = 1; tokens <= kMostTokens; ++tokens) {
    if (Seconds(tokens, token_seconds) > seconds) return tokens - 1;
  }
  return std::nullopt;
}

}  // namespace lm
