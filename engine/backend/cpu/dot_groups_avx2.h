// Products of bytes on AVX2: vpmaddubsw makes sums of two in 16 bits. Of small codes as many of
// these as stay within 16 bits are added before they are widened.
#ifndef LM_ENGINE_BACKEND_CPU_DOT_GROUPS_AVX2_H_
#define LM_ENGINE_BACKEND_CPU_DOT_GROUPS_AVX2_H_

#include "engine/backend/cpu/cpu_kernels.h"
#include "engine/backend/cpu/simd_avx2.h"

namespace lm {
namespace {

// vpmaddubsw saturates for weights above 127: signed bytes are multiplied as magnitude and sign.
constexpr bool kBiasedBytes = false;
constexpr bool kSmallCodesAreFaster = true;

// 32 bytes of weights, as vpmaddubsw takes them.
template <bool kSignedBytes>
struct Weights32 {
  explicit Weights32(__m256i codes) : magnitude(codes) {}
  __m256i PairSums(__m256i x) const { return _mm256_maddubs_epi16(magnitude, x); }
  __m256i magnitude;
};

// Biased by 128. Magnitudes of at most 128 and activations of at most 127 keep the sums of two
// within 16 bits: 2 * 128 * 127 < 32768.
template <>
struct Weights32<true> {
  explicit Weights32(__m256i codes)
      : value(_mm256_xor_si256(codes, _mm256_set1_epi8(static_cast<char>(0x80)))),
        magnitude(_mm256_abs_epi8(value)) {}
  __m256i PairSums(__m256i x) const {
    return _mm256_maddubs_epi16(magnitude, _mm256_sign_epi8(x, value));
  }
  __m256i value, magnitude;
};

// Keeps the compiler from making many sums first and adding them later, out of memory.
inline void AddNow(__m256i* sum) { asm("" : "+x"(*sum)); }

// As assembly: of the intrinsics gcc 12 keeps half of the sums in memory.
inline void DotPairs(I32x16* acc, Pairs16 w, PairInAll x) {
  auto add = [x](__m256i* sums, __m256i pairs) {
    __m256i products;
    asm("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0"
        : "+x"(*sums), "=&x"(products)
        : "x"(pairs), "x"(x.half));
  };
  add(&acc->a, w.a);
  add(&acc->b, w.b);
}

inline __m256i Widen(__m256i sums) { return _mm256_madd_epi16(sums, _mm256_set1_epi16(1)); }

// Groups of four codes, each two sums of two, whose sums stay within 16 bits.
constexpr int GroupsIn16Bits(int most_code) { return 32767 / (2 * 127 * most_code); }

// See dot_groups.h.
template <typename Codes, bool kSigned, int kTokens, int kPanels, int kBegin, int kEnd>
inline void DotGroups(const uint8_t* codes, const uint8_t* table, const ActivationRecord* x,
                      int half, I32x16 (*sums)[kPanels]) {
  constexpr int kFit = kSigned ? 1 : GroupsIn16Bits(Codes::kMostCode);
  constexpr int kTogether = kFit < 2 ? 1 : kFit < 4 ? 2 : kFit < kEnd - kBegin ? 4 : kEnd - kBegin;
  for (int t = 0; t < kTokens; ++t) {
    for (int p = 0; p < kPanels; ++p) sums[t][p] = I32x16::Set(x[t].start[half]);
  }
#pragma GCC unroll 8
  for (int first = kBegin; first < kEnd; first += kTogether) {
    I32x16 few[kTokens][kPanels];
#pragma GCC unroll 8
    for (int g = first; g < first + kTogether; ++g) {
      for (int p = 0; p < kPanels; ++p) {
        const Bytes64 w = Codes::Load(codes + p * Codes::kBlockBytes, g, table);
        const Weights32<kSigned> a(w.a), b(w.b);
        for (int t = 0; t < kTokens; ++t) {
          const __m256i token = Bytes64::Broadcast4(x[t].q + 4 * g).a;
          I32x16* sum = &sums[t][p];
          I32x16* part = &few[t][p];
          if (g == first) {
            *part = {a.PairSums(token), b.PairSums(token)};
          } else {
            part->a = _mm256_add_epi16(part->a, a.PairSums(token));
            part->b = _mm256_add_epi16(part->b, b.PairSums(token));
            AddNow(&part->a);
            AddNow(&part->b);
          }
          if (g + 1 < first + kTogether) continue;
          sum->a = _mm256_add_epi32(sum->a, Widen(part->a));
          sum->b = _mm256_add_epi32(sum->b, Widen(part->b));
          AddNow(&sum->a);
          AddNow(&sum->b);
        }
      }
    }
  }
}

}  // namespace
}  // namespace lm

#endif  // LM_ENGINE_BACKEND_CPU_DOT_GROUPS_AVX2_H_
