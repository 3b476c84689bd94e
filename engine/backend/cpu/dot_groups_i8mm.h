// Products of bytes on ARM64 with FEAT_I8MM (ARMv8.6): of one token by dot products, which here
// take unsigned weights as they are; of two by products of 2 x 8 by 8 x 2 bytes, which do twice as
// much.
#ifndef LM_ENGINE_BACKEND_CPU_DOT_GROUPS_I8MM_H_
#define LM_ENGINE_BACKEND_CPU_DOT_GROUPS_I8MM_H_

#include "engine/backend/cpu/cpu_kernels.h"
#include "engine/backend/cpu/simd_neon.h"

namespace lm {
namespace {

constexpr int kPackedTokens = 2;
constexpr bool kBiasedBytes = true;
constexpr bool kSmallCodesAreFaster = false;

template <bool kSignedBytes>
inline void DotAdd(I32x16* acc, Bytes64 w, Bytes64 x) {
  for (int i = 0; i < 4; ++i) {
    acc->v[i] = vusdotq_s32(acc->v[i], w.v[i], vreinterpretq_s8_u8(x.v[i]));
  }
}

// The sums of two tokens while they are made: row 2 i of the panel with the first token, with the
// second, row 2 i + 1 likewise.
struct PairSums {
  int32x4_t v[8];

  static PairSums Set(int32_t first, int32_t second) {
    PairSums sums;
    int32x4_t four = vzip1q_s32(vdupq_n_s32(first), vdupq_n_s32(second));
    for (int i = 0; i < 8; ++i) sums.v[i] = four;
    return sums;
  }
  // Adds the products of the groups g and g + 1.
  void Add(const uint8x16_t (&rows)[8], const int8_t* first, const int8_t* second) {
    int8x16_t tokens = vcombine_s8(vld1_s8(first), vld1_s8(second));
    for (int i = 0; i < 8; ++i) v[i] = vusmmlaq_s32(v[i], rows[i], tokens);
  }
  void Split(I32x16* first, I32x16* second) const {
    for (int i = 0; i < 4; ++i) {
      first->v[i] = vuzp1q_s32(v[2 * i], v[2 * i + 1]);
      second->v[i] = vuzp2q_s32(v[2 * i], v[2 * i + 1]);
    }
  }
};

// Of one panel; see dot_groups.h.
template <typename Codes, int kTokens, int kBegin, int kEnd>
inline void DotPanel(const uint8_t* codes, const uint8_t* table, const ActivationRecord* x,
                     int half, I32x16* const (&sums)[kTokens]) {
  constexpr int kPairs = kTokens / 2;
  constexpr bool kOneMore = kTokens % 2 == 1;
  const ActivationRecord& last = x[kTokens - 1];
  PairSums pairs[kPairs + 1];
  for (int i = 0; i < kPairs; ++i) {
    pairs[i] = PairSums::Set(x[2 * i].start[half], x[2 * i + 1].start[half]);
  }
  if (kOneMore) *sums[kTokens - 1] = I32x16::Set(last.start[half]);
#pragma GCC unroll 4
  for (int g = kBegin; g < kEnd; g += 2) {
    Bytes64 even = Codes::Load(codes, g, table), odd = Codes::Load(codes, g + 1, table);
    if (kOneMore) {
      DotAdd<false>(sums[kTokens - 1], even, Bytes64::Broadcast4(last.q + 4 * g));
      DotAdd<false>(sums[kTokens - 1], odd, Bytes64::Broadcast4(last.q + 4 * g + 4));
    }
    if (kPairs == 0) continue;
    uint8x16_t rows[8];  // 2 i and 2 i + 1, eight values each
    for (int i = 0; i < 4; ++i) {
      uint32x4_t first = vreinterpretq_u32_u8(even.v[i]), second = vreinterpretq_u32_u8(odd.v[i]);
      rows[2 * i] = vreinterpretq_u8_u32(vzip1q_u32(first, second));
      rows[2 * i + 1] = vreinterpretq_u8_u32(vzip2q_u32(first, second));
    }
    for (int i = 0; i < kPairs; ++i) {
      pairs[i].Add(rows, x[2 * i].q + 4 * g, x[2 * i + 1].q + 4 * g);
    }
  }
  for (int i = 0; i < kPairs; ++i) pairs[i].Split(sums[2 * i], sums[2 * i + 1]);
}

template <typename Codes, bool kSigned, int kTokens, int kPanels, int kBegin, int kEnd>
inline void DotGroups(const uint8_t* codes, const uint8_t* table, const ActivationRecord* x,
                      int half, I32x16 (*sums)[kPanels]) {
  static_assert(!kSigned && kBegin % 2 == 0 && kEnd % 2 == 0);
  for (int p = 0; p < kPanels; ++p) {
    I32x16* of_panel[kTokens];
    for (int t = 0; t < kTokens; ++t) of_panel[t] = &sums[t][p];
    DotPanel<Codes, kTokens, kBegin, kEnd>(codes + p * Codes::kBlockBytes, table, x, half,
                                           of_panel);
  }
}

}  // namespace
}  // namespace lm

#endif  // LM_ENGINE_BACKEND_CPU_DOT_GROUPS_I8MM_H_
