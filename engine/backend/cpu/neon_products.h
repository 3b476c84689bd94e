// Products of bytes on ARMv8.0: two multiplies to 16 bits, an add of pairs, one more with the sums.
#ifndef LM_ENGINE_BACKEND_CPU_NEON_PRODUCTS_H_
#define LM_ENGINE_BACKEND_CPU_NEON_PRODUCTS_H_

#include "engine/backend/cpu/simd_neon.h"

namespace lm {
namespace {

constexpr int kPackedTokens = 1;
constexpr bool kBiasedBytes = false;

// Two products are within 16 bits: 2 * 128 * 127 < 32768.
template <bool kSignedBytes>
inline void DotAdd(I32x16* acc, Bytes64 w, Bytes64 x) {
  for (int i = 0; i < 4; ++i) {
    int8x16_t weights = AsSigned<kSignedBytes>(w.v[i]), values = vreinterpretq_s8_u8(x.v[i]);
    int16x8_t low = vmull_s8(vget_low_s8(weights), vget_low_s8(values));
    int16x8_t high = vmull_high_s8(weights, values);
    acc->v[i] = vpadalq_s16(acc->v[i], vpaddq_s16(low, high));
  }
}

}  // namespace
}  // namespace lm

#endif  // LM_ENGINE_BACKEND_CPU_NEON_PRODUCTS_H_
