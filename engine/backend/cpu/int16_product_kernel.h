// Both products of attention in a cache of int16 (backend.h, Attention): sums of products of 16-bit
// codes, exact in int32, for a tile of tokens and one, two or four panels of 16 columns; and the
// codes of the weights. Integer sums have no order, and the floats that they become are taken in
// the law's, so a result depends neither on the tile nor on the instruction set.
//
// Included by kernels_*.cc after a simd_*.h; names in an unnamed namespace, see there.
#ifndef LM_ENGINE_BACKEND_CPU_INT16_PRODUCT_KERNEL_H_
#define LM_ENGINE_BACKEND_CPU_INT16_PRODUCT_KERNEL_H_

#include "engine/backend/cpu/cpu_kernels.h"
#include "engine/backend/cpu/prefetch.h"

namespace lm {
namespace {

template <bool kScores, int kTokens, int kNumPanels>
void MultiplyInt16Tile(const Int16Product& p) {
  constexpr int kPairBytes = 2 * sizeof(int16_t);
  constexpr int64_t kRunPairs = kKeyRun / 2;
  const bool wanted = p.prefetch_distance != 0;
  const char* w = reinterpret_cast<const char*>(p.w);
  const int16_t* x = p.x;
  for (int64_t begin = 0; begin < p.pairs; begin += kRunPairs) {
    const int64_t end = p.pairs - begin < kRunPairs ? p.pairs : begin + kRunPairs;
    // As in float_product_kernel.h: loops over the sums are unrolled, or they are in memory.
    I32x16 sums[kTokens][kNumPanels];
#pragma GCC unroll 32
    for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 32
      for (int j = 0; j < kNumPanels; ++j) sums[t][j] = I32x16::Set(0);
    }
    for (int64_t k = begin; k < end; ++k) {
      if (wanted) Prefetch(w + p.prefetch_distance, kNumPanels * 16 * kPairBytes);
      Pairs16 weights[kNumPanels];
#pragma GCC unroll 32
      for (int j = 0; j < kNumPanels; ++j) weights[j] = Pairs16::Load(w + 16 * kPairBytes * j);
#pragma GCC unroll 32
      for (int t = 0; t < kTokens; ++t) {
        const PairInAll pair(x + t * kCodeStride);
#pragma GCC unroll 32
        for (int j = 0; j < kNumPanels; ++j) DotPairs(&sums[t][j], weights[j], pair);
      }
      x += 2;
      w += p.k_stride * kPairBytes;
    }
#pragma GCC unroll 32
    for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 32
      for (int j = 0; j < kNumPanels; ++j) {
        float* acc = p.acc + t * p.acc_stride + 16 * j;
        F32x16 sum = sums[t][j].ToFloat();
        if constexpr (kScores) {
          if (begin > 0) sum = F32x16::Load(acc) + sum;
          if (end == p.pairs) sum = sum * F32x16::Load(p.scales + 16 * j);
        } else {
          sum = Fma(sum, F32x16::Set(p.scales[t]), F32x16::Load(acc));
        }
        sum.Store(acc);
      }
    }
  }
}

// Picks the tile's template for a number of tokens in [1, kTokens].
template <bool kScores, int kNumPanels, int kTokens = kFloatAccumulators / kNumPanels>
void MultiplyInt16Tokens(const Int16Product& p) {
  if (p.tokens == kTokens) return MultiplyInt16Tile<kScores, kTokens, kNumPanels>(p);
  if constexpr (kTokens > 1) MultiplyInt16Tokens<kScores, kNumPanels, kTokens - 1>(p);
}

template <bool kScores>
void MultiplyInt16Panels(const Int16Product& p) {
  constexpr int kMostOfOne = kFloatAccumulators / kFloatPanels;  // as of float products
  if constexpr (!kScores) {
    if (p.panels == 4) return MultiplyInt16Tokens<kScores, 4>(p);
  }
  if (p.panels == 2) return MultiplyInt16Tokens<kScores, 2>(p);
  MultiplyInt16Tokens<kScores, 1, kMostOfOne>(p);
}

void MultiplyInt16(const Int16Product& p) {
  if (p.scores) {
    MultiplyInt16Panels<true>(p);
  } else {
    MultiplyInt16Panels<false>(p);
  }
}

inline uint32_t MaxOf(uint32_t a, uint32_t b) { return a > b ? a : b; }

// QuantizeToCodes (quantize_to_codes.h).
float QuantizeToInt16Row(const float* x, int64_t n, int most, int16_t* q) {
  const int64_t whole = n / 32 * 32, rest = n - whole;
  float last[32];
  if (rest > 0) {
    __builtin_memset(last, 0, sizeof(last));
    __builtin_memcpy(last, x + whole, rest * sizeof(float));
  }
  uint32_t max_bits = rest > 0 ? ActivationVector(last).MaxBits() : 0;
  for (int64_t i = 0; i < whole; i += 32) {
    max_bits = MaxOf(max_bits, ActivationVector(x + i).MaxBits());
  }
  float max;
  __builtin_memcpy(&max, &max_bits, sizeof(max));
  const float limit = static_cast<float>(most), inverse = limit / max;
  const bool finite = max_bits < 0x7f800000u;
  if (!finite || inverse == __builtin_inff()) {
    __builtin_memset(q, 0, n * sizeof(int16_t));
    return finite ? 0 : __builtin_nanf("");
  }
  for (int64_t i = 0; i < whole; i += 32) ActivationVector(x + i).QuantizeTo16(inverse, q + i);
  if (rest > 0) {
    int16_t codes[32];
    ActivationVector(last).QuantizeTo16(inverse, codes);
    __builtin_memcpy(q + whole, codes, rest * sizeof(int16_t));
  }
  return max / limit;
}

// Of up to 16 rows; what is divided, for all of them at once.
inline void QuantizeWeightRows(float* weights, const F32x16 (&scales)[2], int rows,
                               float* weight_scales) {
  uint32_t max_bits[16] = {};
  for (int row = 0; row < rows; ++row) {
    float* at = weights + row * kScoreStride;
    for (int half = 0; half < 2; ++half) {
      const F32x16 weight = F32x16::Load(at + 16 * half);
      // What has no weight (the others are no less than this) may have no scale yet, either.
      ZeroBelow(weight * scales[half], weight, __FLT_MIN__).Store(at + 16 * half);
    }
    max_bits[row] = ActivationVector(at).MaxBits();
  }
  float max[16], inverse[16], found[16];
  __builtin_memcpy(max, max_bits, sizeof(max));
  const F32x16 limit = F32x16::Set(kMostCode);
  (limit / F32x16::Load(max)).Store(inverse);
  (F32x16::Load(max) / limit).Store(found);
  for (int row = 0; row < rows; ++row) {
    float* at = weights + row * kScoreStride;
    auto* codes = reinterpret_cast<int16_t*>(at);
    const bool finite = max_bits[row] < 0x7f800000u;
    if (finite && inverse[row] != __builtin_inff()) {
      ActivationVector(at).QuantizeTo16(inverse[row], codes);
      weight_scales[row] = found[row];
    } else {
      __builtin_memset(codes, 0, 32 * sizeof(int16_t));
      weight_scales[row] = finite ? 0 : __builtin_nanf("");
    }
  }
}

void QuantizeWeights(float* weights, const float* scales, int rows, float* weight_scales) {
  const F32x16 both[2] = {F32x16::Load(scales), F32x16::Load(scales + 16)};
  for (int row = 0; row < rows; row += 16) {
    QuantizeWeightRows(weights + row * kScoreStride, both, rows - row < 16 ? rows - row : 16,
                       weight_scales + row);
  }
}

}  // namespace
}  // namespace lm

#endif  // LM_ENGINE_BACKEND_CPU_INT16_PRODUCT_KERNEL_H_
