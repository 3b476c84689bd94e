// DrawWeights for x86: the same loop, compiled for AVX2 and AVX-512.
#include "engine/backend/draw_weights.h"
#include "engine/backend/draw_weights_loop.h"
#include "engine/base/cpu_features.h"

namespace lm {
namespace {

__attribute__((target("avx2"))) void FillAvx2(absl::Span<const float> logits, double greatest,
                                              double inverse_temperature, uint64_t* weights) {
  FillDrawWeights(logits, greatest, inverse_temperature, weights);
}

__attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,prefer-vector-width=512"))) void
FillAvx512(absl::Span<const float> logits, double greatest, double inverse_temperature,
           uint64_t* weights) {
  FillDrawWeights(logits, greatest, inverse_temperature, weights);
}

}  // namespace

void DrawWeights(absl::Span<const float> logits, double greatest, double inverse_temperature,
                 uint64_t* weights) {
  switch (BestIsa()) {
    case Isa::kAvx2:
    case Isa::kAvxVnni:
      return FillAvx2(logits, greatest, inverse_temperature, weights);
    case Isa::kAvx512Vnni:
      return FillAvx512(logits, greatest, inverse_temperature, weights);
    default:
      return FillDrawWeights(logits, greatest, inverse_temperature, weights);
  }
}

}  // namespace lm
