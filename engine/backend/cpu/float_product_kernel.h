// acc[t][i] += sum_k w[k][i] x[t][k] for a tile of tokens and one or two panels of 16 columns: the
// product with float weights, and both products of attention. Each lane is a chain of fma in
// ascending k, so a result depends neither on the tile nor on the instruction set.
//
// Included by kernels_*.cc after a simd_*.h; names in an unnamed namespace, see there.
#ifndef LM_ENGINE_BACKEND_CPU_FLOAT_PRODUCT_KERNEL_H_
#define LM_ENGINE_BACKEND_CPU_FLOAT_PRODUCT_KERNEL_H_

#include "engine/backend/cpu/cpu_kernels.h"
#include "engine/backend/cpu/prefetch.h"

namespace lm {
namespace {

template <DType kType>
inline F32x16 LoadWeights(const void* w, int64_t i) {
  if constexpr (kType == DType::kF32) return F32x16::Load(static_cast<const float*>(w) + i);
  if constexpr (kType == DType::kF16) return F32x16::LoadHalf(static_cast<const uint16_t*>(w) + i);
  if constexpr (kType == DType::kI8) return F32x16::LoadI8(static_cast<const int8_t*>(w) + i);
  if constexpr (kType == DType::kBF16) return F32x16::LoadBf16(static_cast<const uint16_t*>(w) + i);
}

template <DType kType, bool kPacked, int kTokens, int kNumPanels, int kParts = 1>
void MultiplyFloatTile(const FloatProduct& p) {
  static_assert(kParts == 1 || (kPacked && !kFewRegisters));
  // Every loop over the accumulators says that it is to be unrolled: of one that gcc leaves as it
  // is the whole array is in memory, and each fma waits for a store (half of the speed with
  // AVX-512).
  F32x16 acc[kParts * kTokens][kNumPanels];  // [part][token]
  auto at_acc = [&](int t, int j) { return p.acc + t * p.acc_stride + 16 * j; };
#pragma GCC unroll 32
  for (int t = 0; t < kParts * kTokens; ++t) {
#pragma GCC unroll 32
    for (int j = 0; j < kNumPanels; ++j) acc[t][j] = F32x16::Zero();
  }
  if (p.accumulate == Accumulate::kContinue) {
#pragma GCC unroll 32
    for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 32
      for (int j = 0; j < kNumPanels; ++j) acc[t][j] = F32x16::Load(at_acc(t, j));
    }
  }
  const float* x = p.x;
  constexpr int kBytes = kType == DType::kF32 ? 4 : kType == DType::kI8 ? 1 : 2;
  // A packed product nearly always wants something, and is faster without the question at each
  // step: one that wants nothing asks for its own first weights. Most of attention's want nothing.
  const bool wanted = p.prefetch != nullptr;
  const char* next = static_cast<const char*>(wanted ? p.prefetch : p.w);
  const int64_t next_step = wanted ? p.prefetch_step : 0;
  const int64_t next_part = wanted ? p.k * p.k_stride * kBytes : 0;
  int64_t at = 0;
  for (int64_t k = 0; k < p.k; ++k) {
    if constexpr (kPacked) {
#pragma GCC unroll 8
      for (int part = 0; part < kParts; ++part) {
        Prefetch(next + part * next_part, kNumPanels * 16 * kBytes);
      }
      next += next_step;
    } else if (wanted) {
      Prefetch(next + at * kBytes, kNumPanels * 16 * kBytes);
    }
    if constexpr (kFewRegisters) {
      // Beside the accumulators there is room for one panel's weights and one token's value: one
      // chain that goes through memory is the whole tile's time. (gcc keeps the accumulators in
      // registers in one loop, not in two, and would keep the tokens for the next panel.)
      F32x16 w;
      for (int i = 0; i < kTokens * kNumPanels; ++i) {
        const int t = i % kTokens, j = i / kTokens;
        if (t == 0) {
          w = LoadWeights<kType>(p.w, at + j * p.panel_stride);
          asm("" : "+r"(x));
        }
        const F32x16 token = F32x16::Set(x[kPacked ? t : t * kScoreStride]);
        acc[t][j] = Fma(w, token, acc[t][j]);
      }
    } else {
#pragma GCC unroll 8
      for (int part = 0; part < kParts; ++part) {
        const int64_t part_at = at + part * p.k * p.k_stride;
        const float* const part_x = x + part * p.k * kTokens;
        F32x16 w[kNumPanels];
#pragma GCC unroll 32
        for (int j = 0; j < kNumPanels; ++j) {
          w[j] = LoadWeights<kType>(p.w, part_at + j * p.panel_stride);
        }
#pragma GCC unroll 32
        for (int t = 0; t < kTokens; ++t) {
          const F32x16 token = F32x16::Set(part_x[kPacked ? t : t * kScoreStride]);
          F32x16* const sums = acc[part * kTokens + t];
#pragma GCC unroll 32
          for (int j = 0; j < kNumPanels; ++j) sums[j] = Fma(w[j], token, sums[j]);
        }
      }
    }
    x += kPacked ? kTokens : 1;
    at += p.k_stride;
  }
  if (p.accumulate == Accumulate::kAdd) {
#pragma GCC unroll 32
    for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 32
      for (int j = 0; j < kNumPanels; ++j) acc[t][j] = F32x16::Load(at_acc(t, j)) + acc[t][j];
    }
  }
#pragma GCC unroll 32
  for (int t = kTokens; t < kParts * kTokens; ++t) {
#pragma GCC unroll 32
    for (int j = 0; j < kNumPanels; ++j) acc[t % kTokens][j] = acc[t % kTokens][j] + acc[t][j];
  }
#pragma GCC unroll 32
  for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 32
    for (int j = 0; j < kNumPanels; ++j) acc[t][j].Store(at_acc(t, j));
  }
}

// The same of a product of p.parts parts, at most kParts of them.
template <DType kType, bool kPacked, int kTokens, int kNumPanels, int kParts>
void MultiplyFloatParts(const FloatProduct& p) {
  if constexpr (kParts > 1 && (!kPacked || kNumPanels < 4 ||
                               kParts * kTokens * kNumPanels > kFloatAccumulators)) {
    MultiplyFloatParts<kType, kPacked, kTokens, kNumPanels, kParts / 2>(p);
  } else if constexpr (kParts > 1) {
    if (p.parts == kParts) {
      return MultiplyFloatTile<kType, kPacked, kTokens, kNumPanels, kParts>(p);
    }
    MultiplyFloatParts<kType, kPacked, kTokens, kNumPanels, kParts / 2>(p);
  } else {
    MultiplyFloatTile<kType, kPacked, kTokens, kNumPanels>(p);
  }
}

// Picks the tile's template for a number of tokens in [1, kTokens].
template <DType kType, bool kPacked, int kNumPanels, int kTokens = kFloatAccumulators / kNumPanels>
void MultiplyFloatTokens(const FloatProduct& p) {
  if (p.tokens == kTokens) {
    return MultiplyFloatParts<kType, kPacked, kTokens, kNumPanels, kStreams>(p);
  }
  if constexpr (kTokens > 1) MultiplyFloatTokens<kType, kPacked, kNumPanels, kTokens - 1>(p);
}

template <DType kType, bool kPacked>
void MultiplyFloatPanels(const FloatProduct& p) {
  // One panel alone is rare where four are the rule: no more tokens than with four.
  constexpr int kMostOfOne = kFloatAccumulators / kFloatPanels;
  switch (p.panels) {
    case 4:
      return MultiplyFloatTokens<kType, kPacked, 4>(p);
    case 2:
      return MultiplyFloatTokens<kType, kPacked, 2>(p);
    default:
      return MultiplyFloatTokens<kType, kPacked, 1, kMostOfOne>(p);
  }
}

void MultiplyFloat(const FloatProduct& p) {
  switch (p.type) {
    case DType::kF16:
      return p.packed ? MultiplyFloatPanels<DType::kF16, true>(p)
                      : MultiplyFloatPanels<DType::kF16, false>(p);
    case DType::kI8:
      return MultiplyFloatPanels<DType::kI8, false>(p);
    case DType::kBF16:
      return MultiplyFloatTokens<DType::kBF16, true, 4>(p);
    default:
      return p.packed ? MultiplyFloatPanels<DType::kF32, true>(p)
                      : MultiplyFloatPanels<DType::kF32, false>(p);
  }
}

void ToFloat(DType dtype, const void* x, int64_t n, float* out) {
  for (int64_t i = 0; i < n; i += 16) {
    if (i % 32 == 0) PrefetchAhead(static_cast<const uint16_t*>(x) + i, 64);
    (dtype == DType::kF16 ? LoadWeights<DType::kF16>(x, i) : LoadWeights<DType::kBF16>(x, i))
        .Store(out + i);
  }
}

}  // namespace
}  // namespace lm

#endif  // LM_ENGINE_BACKEND_CPU_FLOAT_PRODUCT_KERNEL_H_
