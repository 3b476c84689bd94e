#include "engine/model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace lm {

std::vector<double> RopeFrequencies(const RopeSpec& rope, absl::Span<const float> factors) {
  const double dim = static_cast<double>(rope.dim);
  double low = 0, high = 0;
  if (rope.yarn.has_value()) {
    auto pair_of = [&](double turns) {
      return dim * std::log(rope.yarn->original_context / (2 * std::numbers::pi * turns)) /
             (2 * std::log(rope.base));
    };
    low = std::max(std::floor(pair_of(rope.yarn->beta_fast)), 0.0);
    high = std::min(std::ceil(pair_of(rope.yarn->beta_slow)), dim - 1);
  }
  std::vector<double> frequencies;
  for (int64_t i = 0; i < rope.dim / 2; ++i) {
    double frequency = std::pow(rope.base, -2.0 * static_cast<double>(i) / dim);
    if (!factors.empty()) frequency /= factors[i];
    double keep = 0;
    if (rope.yarn.has_value()) {
      const double place = (static_cast<double>(i) - low) / std::max(high - low, 0.001);
      keep = 1 - std::clamp(place, 0.0, 1.0);
    }
    frequencies.push_back(frequency * (keep + (1 - keep) / rope.scale));
  }
  for (const int64_t pair : rope.still) frequencies[pair] = 0;
  return frequencies;
}

}  // namespace lm
