// How fast the pairs of a head turn with the position (rotary position embedding: Su et al. 2021,
// arXiv 2104.09864).
//
//   const std::vector<double> frequencies = RopeFrequencies(spec.rope, weights.rope_factors);
//   angle = position * frequencies[i];
#ifndef LM_ENGINE_MODEL_ROPE_H_
#define LM_ENGINE_MODEL_ROPE_H_

#include <vector>

#include "absl/types/span.h"
#include "engine/model/model_spec.h"

namespace lm {

// Radians a position, for each of the dim / 2 pairs. Pair i turns by f_i = base^(-2 i / dim) /
// factors[i], divided by `scale`; with YaRN by
//   f_i * (keep_i + (1 - keep_i) / scale),  keep_i = 1 - clamp((i - low) / max(high - low, 0.001),
//   0, 1), low = max(floor(r(beta_fast)), 0), high = min(ceil(r(beta_slow)), dim - 1), r(turns) =
//   dim ln(original_context / (2 pi turns)) / (2 ln base),
// as llama.cpp computes it. REQUIRES: factors has dim / 2 values, or none (all 1).
std::vector<double> RopeFrequencies(const RopeSpec& rope, absl::Span<const float> factors);

}  // namespace lm

#endif  // LM_ENGINE_MODEL_ROPE_H_
