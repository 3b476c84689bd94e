// DrawWeights for all processors but x86: the plain loop.
#include "engine/backend/draw_weights.h"
#include "engine/backend/draw_weights_loop.h"

namespace lm {

void DrawWeights(absl::Span<const float> logits, double greatest, double inverse_temperature,
                 uint64_t* weights) {
  FillDrawWeights(logits, greatest, inverse_temperature, weights);
}

}  // namespace lm
