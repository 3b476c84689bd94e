#include "engine/backend/draw_weights.h"

#include <cstddef>

#include "engine/backend/draw_law.h"
#include "engine/base/cpu_features.h"

namespace lm {
namespace {

// Loops without branches, which vectorise.
[[gnu::always_inline]] inline void Fill(absl::Span<const float> logits, double greatest,
                                        double inverse_temperature, uint64_t* weights) {
  double below[kMostWeights];
  const size_t count = logits.size();
  for (size_t i = 0; i < count; ++i) {
    below[i] = BelowGreatest(logits[i], greatest, inverse_temperature);
  }
  for (size_t i = 0; i < count; ++i) weights[i] = WeightOf(below[i]);
}

void FillAnywhere(absl::Span<const float> logits, double greatest, double inverse_temperature,
                  uint64_t* weights) {
  Fill(logits, greatest, inverse_temperature, weights);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) void FillAvx2(absl::Span<const float> logits, double greatest,
                                              double inverse_temperature, uint64_t* weights) {
  Fill(logits, greatest, inverse_temperature, weights);
}

__attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,prefer-vector-width=512"))) void
FillAvx512(absl::Span<const float> logits, double greatest, double inverse_temperature,
           uint64_t* weights) {
  Fill(logits, greatest, inverse_temperature, weights);
}
#endif

}  // namespace

void DrawWeights(absl::Span<const float> logits, double greatest, double inverse_temperature,
                 uint64_t* weights) {
  switch (BestIsa()) {
#if defined(__x86_64__)
    case Isa::kAvx2:
    case Isa::kAvxVnni:
      return FillAvx2(logits, greatest, inverse_temperature, weights);
    case Isa::kAvx512Vnni:
      return FillAvx512(logits, greatest, inverse_temperature, weights);
#endif
    default:
      return FillAnywhere(logits, greatest, inverse_temperature, weights);
  }
}

}  // namespace lm
