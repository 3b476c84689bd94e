// Products of signed bytes and many tokens on AVX2, after blocks have been split once for all of
// them. vpmaddubsw takes unsigned bytes on one side, so a weight's sign must go over to the token.
// vpsignb does that, but shares units with the two multiplications, which are what the loop waits
// for (tests/benchmarks/cpu_products.md). An exclusive or with a mask of the negative weights runs
// on others, too, and makes ~x of x, which is -x - 1:
//
//   sum(w * x) = sum(|w| * (x ^ mask)) + sum(|w| where w < 0)
//
// so that a split block has magnitudes, masks, and that last sum for each row.
#ifndef LM_ENGINE_BACKEND_CPU_SPLIT_BYTES_AVX2_H_
#define LM_ENGINE_BACKEND_CPU_SPLIT_BYTES_AVX2_H_

#include "engine/backend/cpu/dot_groups_avx2.h"
#include "engine/backend/cpu/panel_codes.h"

namespace lm {
namespace {

// From so many tokens on, splitting costs less than it saves.
constexpr int kSplitTokens = 12;
constexpr int kSplitBytesTokens = 24;

// [16 rows] sums of negative magnitudes, int32; [8 groups]([16][4] magnitudes, [16][4] masks).
struct SplitBytes {
  static constexpr bool kSplit = true;
  static constexpr int kBlockBytes = kSplitBlockBytes;
  static constexpr int kSums = 4 * kPanelRows;
  static constexpr int kGroupBytes = 2 * 4 * kPanelRows;
  static_assert(kBlockBytes == kSums + kGroups * kGroupBytes);
};

// Sums of two stay within 16 bits: 2 * 128 * 127 and 2 * 128 * -128 do.
template <typename Codes, bool kSigned, int kTokens, int kPanels, int kBegin, int kEnd>
requires Codes::kSplit inline void DotGroups(const uint8_t* codes, const uint8_t* /*table*/,
                                             const ActivationRecord* x, int /*half*/,
                                             I32x16 (*sums)[kPanels]) {
  for (int p = 0; p < kPanels; ++p) {
    const Bytes64 start = Bytes64::Load(codes + p * Codes::kBlockBytes);
    for (int t = 0; t < kTokens; ++t) sums[t][p] = {start.a, start.b};
  }
#pragma GCC unroll 8
  for (int g = kBegin; g < kEnd; ++g) {
    for (int p = 0; p < kPanels; ++p) {
      const uint8_t* group = codes + p * Codes::kBlockBytes + Codes::kSums + g * Codes::kGroupBytes;
      const Bytes64 magnitude = Bytes64::Load(group);
      const Bytes64 mask = Bytes64::Load(group + Codes::kGroupBytes / 2);
      for (int t = 0; t < kTokens; ++t) {
        const __m256i token = Bytes64::Broadcast4(x[t].q + 4 * g).a;
        I32x16* sum = &sums[t][p];
        auto products = [token](__m256i magnitude, __m256i mask) {
          return Widen(_mm256_maddubs_epi16(magnitude, _mm256_xor_si256(token, mask)));
        };
        sum->a = _mm256_add_epi32(sum->a, products(magnitude.a, mask.a));
        sum->b = _mm256_add_epi32(sum->b, products(magnitude.b, mask.b));
        AddNow(&sum->a);
        AddNow(&sum->b);
      }
    }
  }
}

template <typename Codes>
void SplitCodesAs(const PanelFormat& format, const uint8_t* codes, int64_t num_blocks, uint8_t* out,
                  int64_t out_step) {
  const __m256i ones = _mm256_set1_epi8(1);
  for (int64_t b = 0; b < num_blocks; ++b) {
    __m256i sums[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};  // of two, in 16 bits
#pragma GCC unroll 8
    for (int g = 0; g < kGroups; ++g) {
      const Bytes64 biased = Codes::Load(codes, g, format.biased_table);
      uint8_t* group = out + SplitBytes::kSums + g * SplitBytes::kGroupBytes;
      auto split = [ones](__m256i biased, __m256i* sum, __m256i* mask) {
        const __m256i value = _mm256_xor_si256(biased, _mm256_set1_epi8(static_cast<char>(0x80)));
        const __m256i magnitude = _mm256_abs_epi8(value);
        *mask = _mm256_cmpgt_epi8(_mm256_setzero_si256(), value);
        const __m256i negative = _mm256_and_si256(magnitude, *mask);
        *sum = _mm256_add_epi16(*sum, _mm256_maddubs_epi16(negative, ones));
        return magnitude;
      };
      Bytes64 magnitude, mask;
      magnitude.a = split(biased.a, &sums[0], &mask.a);
      magnitude.b = split(biased.b, &sums[1], &mask.b);
      magnitude.Store(group);
      mask.Store(group + SplitBytes::kGroupBytes / 2);
    }
    Bytes64{Widen(sums[0]), Widen(sums[1])}.Store(out);
    codes += kPanelsAPair * Codes::kBlockBytes;
    out += out_step;
  }
}

// See CpuKernels::split_codes.
void SplitCodes(const PanelFormat& format, const uint8_t* codes, int64_t num_blocks, uint8_t* out,
                int64_t out_step) {
  // Tables of fewer than sixteen have small values (panel_format.cc).
  if (format.low_bits == 4) {
    return SplitCodesAs<PanelCodes<4, 0, true>>(format, codes, num_blocks, out, out_step);
  }
  SplitCodesAs<PanelCodes<8, 0>>(format, codes, num_blocks, out, out_step);
}

}  // namespace
}  // namespace lm

#endif  // LM_ENGINE_BACKEND_CPU_SPLIT_BYTES_AVX2_H_
