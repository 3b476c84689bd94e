// Products of bytes by the dot product instructions (FEAT_DotProd, ARMv8.2).
#ifndef LM_ENGINE_BACKEND_CPU_NEON_DOTPROD_PRODUCTS_H_
#define LM_ENGINE_BACKEND_CPU_NEON_DOTPROD_PRODUCTS_H_

#include "engine/backend/cpu/simd_neon.h"

namespace lm {
namespace {

constexpr int kPackedTokens = 2;
constexpr bool kBiasedBytes = false;

template <bool kSignedBytes>
inline void DotAdd(I32x16* acc, Bytes64 w, Bytes64 x) {
  for (int i = 0; i < 4; ++i) {
    acc->v[i] = vdotq_s32(acc->v[i], AsSigned<kSignedBytes>(w.v[i]), vreinterpretq_s8_u8(x.v[i]));
  }
}

}  // namespace
}  // namespace lm

#endif  // LM_ENGINE_BACKEND_CPU_NEON_DOTPROD_PRODUCTS_H_
