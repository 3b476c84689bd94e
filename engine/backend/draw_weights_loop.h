// What DrawWeights does, compiled for each family of processors.
#ifndef LM_ENGINE_BACKEND_DRAW_WEIGHTS_LOOP_H_
#define LM_ENGINE_BACKEND_DRAW_WEIGHTS_LOOP_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "engine/backend/draw_law.h"
#include "engine/backend/draw_weights.h"

namespace lm {

// Loops without branches, which vectorise.
[[gnu::always_inline]] inline void FillDrawWeights(absl::Span<const float> logits, double greatest,
                                                   double inverse_temperature, uint64_t* weights) {
  double below[kMostWeights];
  const size_t count = logits.size();
  for (size_t i = 0; i < count; ++i) {
    below[i] = BelowGreatest(logits[i], greatest, inverse_temperature);
  }
  for (size_t i = 0; i < count; ++i) weights[i] = WeightOf(below[i]);
}

}  // namespace lm

#endif  // LM_ENGINE_BACKEND_DRAW_WEIGHTS_LOOP_H_
