// The weights of many tokens (draw_law.h), by what the processor has for doubles.
#ifndef LM_ENGINE_BACKEND_DRAW_WEIGHTS_H_
#define LM_ENGINE_BACKEND_DRAW_WEIGHTS_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"

namespace lm {

inline constexpr size_t kMostWeights = 64;  // at a time

// weights[i] = WeightOf(BelowGreatest(logits[i], greatest, inverse_temperature)). REQUIRES: there
// are at most kMostWeights.
void DrawWeights(absl::Span<const float> logits, double greatest, double inverse_temperature,
                 uint64_t* weights);

}  // namespace lm

#endif  // LM_ENGINE_BACKEND_DRAW_WEIGHTS_H_
