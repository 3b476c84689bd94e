// The int32 sums of a block, a group of four values at a time. kernels_*.cc include it after a
// simd_*.h, or another file that says how.
#ifndef LM_ENGINE_BACKEND_CPU_DOT_GROUPS_H_
#define LM_ENGINE_BACKEND_CPU_DOT_GROUPS_H_

#include "engine/backend/cpu/cpu_kernels.h"

namespace lm {
namespace {

constexpr bool kSmallCodesAreFaster = false;

// sums[t][p] = start + the products of the groups [kBegin, kEnd) of a block.
template <typename Codes, bool kSigned, int kTokens, int kPanels, int kBegin, int kEnd>
inline void DotGroups(const uint8_t* codes, const uint8_t* table, const ActivationRecord* x,
                      int half, I32x16 (*sums)[kPanels]) {
#pragma GCC unroll 16
  for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 16
    for (int p = 0; p < kPanels; ++p) sums[t][p] = I32x16::Set(x[t].start[half]);
  }
#pragma GCC unroll 8
  for (int g = kBegin; g < kEnd; ++g) {
    Bytes64 w[kPanels];
#pragma GCC unroll 16
    for (int p = 0; p < kPanels; ++p) w[p] = Codes::Load(codes + p * Codes::kBlockBytes, g, table);
#pragma GCC unroll 16
    for (int t = 0; t < kTokens; ++t) {
      Bytes64 token = Bytes64::Broadcast4(x[t].q + 4 * g);
#pragma GCC unroll 16
      for (int p = 0; p < kPanels; ++p) DotAdd<kSigned>(&sums[t][p], w[p], token);
    }
  }
}

}  // namespace
}  // namespace lm

#endif  // LM_ENGINE_BACKEND_CPU_DOT_GROUPS_H_
