// Sums over blocks of 32 of the integer products of a panel's codes and quantised activations,
// scaled as backend.h specifies (MatMul): a tile of tokens times one or two panels of 16 columns.
// Included by isa_kernels.h.
//
// The codes are unsigned (q_w + bias), and a record's `start` takes the bias away; or they are
// split (split_bytes_avx2.h). Per token, panel and block: eight dot products of four, one
// conversion, one product of scales, one fma; one more fma for a minimum.
#ifndef LM_ENGINE_BACKEND_CPU_QUANTIZED_PRODUCT_KERNEL_H_
#define LM_ENGINE_BACKEND_CPU_QUANTIZED_PRODUCT_KERNEL_H_

#include "engine/backend/cpu/cpu_kernels.h"
#include "engine/backend/cpu/panel_codes.h"
#include "engine/backend/cpu/panel_scales.h"
#include "engine/backend/cpu/prefetch.h"

namespace lm {
namespace {

template <typename Codes, bool kSigned, template <bool, int, int> class Scales, bool kHalfScales,
          int kMinima, int kTokens, int kPanels, int kRuns = 1>
void MultiplyQuantizedTile(const QuantizedProduct& args) {
  constexpr int kFirstMin = 1 + (kHalfScales ? 2 : 0);
  constexpr int kRows = kRuns * kTokens;  // of acc: [run][token]
  F32x16 acc[kRows][kPanels];             // in registers: float_product_kernel.h
  auto at_acc = [&](int row, int p) {
    return args.acc + row / kTokens * args.acc_run + row % kTokens * args.acc_stride +
           p * kPanelRows;
  };
#pragma GCC unroll 16
  for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 16
    for (int p = 0; p < kPanels; ++p) acc[row][p] = F32x16::Zero();
  }
  if (args.accumulate == Accumulate::kContinue) {
#pragma GCC unroll 16
    for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 16
      for (int p = 0; p < kPanels; ++p) acc[row][p] = F32x16::Load(at_acc(row, p));
    }
  }
  const uint8_t* codes = args.codes;
  const uint8_t* table = args.format->biased_table;
  Scales<kHalfScales, kMinima, kPanels> run_scales[kRuns];
#pragma GCC unroll 4
  for (int run = 0; run < kRuns; ++run) {
    const void* const from = static_cast<const uint8_t*>(args.scales) + run * args.scales_run;
    run_scales[run].Begin(*args.format, from, args.scales_ahead);
  }
  const ActivationRecord* x = args.x;
  const uint8_t* next = args.prefetch;
  for (int64_t b = 0; b < args.num_blocks; ++b) {
#pragma GCC unroll 4
    for (int run = 0; run < kRuns; ++run) {
      auto& scales = run_scales[run];
      scales.Next();
      auto scale = [&](int p, int i) { return scales.Get(p, i); };
      if (next != nullptr) Prefetch(next + run * args.codes_run, args.prefetch_bytes);
      const uint8_t* const run_codes = codes + run * args.codes_run;
      F32x16(*const run_acc)[kPanels] = acc + run * kTokens;
      I32x16 sums[kTokens][kPanels];
      if constexpr (kHalfScales) {
        // Scaled sums are exact as floats.
        F32x16 first[kTokens][kPanels];
        DotGroups<Codes, kSigned, kTokens, kPanels, 0, 4>(run_codes, table, x, 0, sums);
#pragma GCC unroll 16
        for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 16
          for (int p = 0; p < kPanels; ++p) first[t][p] = sums[t][p].ToFloat() * scale(p, 1);
        }
        DotGroups<Codes, kSigned, kTokens, kPanels, 4, 8>(run_codes, table, x, 1, sums);
#pragma GCC unroll 16
        for (int t = 0; t < kTokens; ++t) {
          F32x16 s = F32x16::Set(x[t].s);
#pragma GCC unroll 16
          for (int p = 0; p < kPanels; ++p) {
            F32x16 sum = MulAdd(sums[t][p].ToFloat(), scale(p, 2), first[t][p]);
            run_acc[t][p] = Fma(sum, scale(p, 0) * s, run_acc[t][p]);
          }
        }
      } else {
        DotGroups<Codes, kSigned, kTokens, kPanels, 0, 8>(run_codes, table, x, 0, sums);
#pragma GCC unroll 16
        for (int t = 0; t < kTokens; ++t) {
          F32x16 s = F32x16::Set(x[t].s);
#pragma GCC unroll 16
          for (int p = 0; p < kPanels; ++p) {
            run_acc[t][p] = Fma(sums[t][p].ToFloat(), scale(p, 0) * s, run_acc[t][p]);
          }
        }
      }
#pragma GCC unroll 16
      for (int m = 0; m < kMinima; ++m) {
#pragma GCC unroll 16
        for (int t = 0; t < kTokens; ++t) {
          F32x16 weighted_sum = F32x16::Set(x[t].weighted_sum[m]);
#pragma GCC unroll 16
          for (int p = 0; p < kPanels; ++p) {
            run_acc[t][p] = Fma(scale(p, kFirstMin + m), weighted_sum, run_acc[t][p]);
          }
        }
      }
      if constexpr (kRuns > 1) asm("" : : : "memory");  // else gcc mixes the runs, on the stack
    }
    if (next != nullptr) next += args.prefetch_step;
    codes += args.codes_step;
    x += kTokens;
  }
  if (args.accumulate == Accumulate::kAdd) {
#pragma GCC unroll 16
    for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 16
      for (int p = 0; p < kPanels; ++p) acc[row][p] = F32x16::Load(at_acc(row, p)) + acc[row][p];
    }
  }
#pragma GCC unroll 16
  for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 16
    for (int p = 0; p < kPanels; ++p) acc[row][p].Store(at_acc(row, p));
  }
}

// Picks the tile's template for a number of tokens in [1, kTokens].
template <typename Codes, bool kSigned, template <bool, int, int> class Scales, bool kHalfScales,
          int kMinima, int kTokens, bool kOfPanels = false>
void MultiplyQuantizedTokens(const QuantizedProduct& args) {
  if (args.tokens == kTokens) {
    if constexpr (kTokens <= kPairTokens && kTilePanels < kPanelsAPair) {
      if (args.panels == kPanelsAPair) {
        return MultiplyQuantizedTile<Codes, kSigned, Scales, kHalfScales, kMinima, kTokens,
                                     kPanelsAPair>(args);
      }
    }
    if constexpr (kOfPanels && kTokens <= kStreamTokens &&
                  LeavesRegisters(kHalfScales, kMinima, kTokens)) {
      if (args.runs > 1) {
        return MultiplyQuantizedTile<Codes, kSigned, Scales, kHalfScales, kMinima, kTokens,
                                     kTilePanels, kStreams>(args);
      }
    }
    return MultiplyQuantizedTile<Codes, kSigned, Scales, kHalfScales, kMinima, kTokens,
                                 kTilePanels>(args);
  }
  if constexpr (kTokens > 1) {
    MultiplyQuantizedTokens<Codes, kSigned, Scales, kHalfScales, kMinima, kTokens - 1, kOfPanels>(
        args);
  }
}

// Any number of tokens: scales are unpacked.
template <typename Codes, bool kSigned, bool kHalfScales, int kMinima, int kTokens>
void MultiplyUnpackedScales(const QuantizedProduct& args) {
  MultiplyQuantizedTokens<Codes, kSigned, UnpackedScales, kHalfScales, kMinima, kTokens>(args);
}

// Codes as bytes of at most kMost, any number of tokens.
template <int kMost>
void MultiplyBytesUpTo(const QuantizedProduct& args) {
  using Codes = ByteCodes<kMost>;
  const PanelFormat& format = *args.format;
  if (format.half_scales && format.minima == 2) {
    return MultiplyUnpackedScales<Codes, false, true, 2, kHalfScaleTokens>(args);
  }
  if (format.half_scales) {
    return MultiplyUnpackedScales<Codes, false, true, 0, kHalfScaleTokens>(args);
  }
  if (format.minima == 1) {
    return MultiplyUnpackedScales<Codes, false, false, 1, kQuantizedTokens>(args);
  }
  MultiplyUnpackedScales<Codes, false, false, 0, kQuantizedTokens>(args);
}

void MultiplyByteCodes(const QuantizedProduct& args) {
  if (args.format->signed_bytes) {
    return MultiplyUnpackedScales<ByteCodes<>, !kBiasedBytes, false, 0, kQuantizedTokens>(args);
  }
  if constexpr (kSmallCodesAreFaster) {
    if (args.format->most_code < 16) return MultiplyBytesUpTo<15>(args);
    if (args.format->most_code < 32) return MultiplyBytesUpTo<31>(args);
    if (args.format->most_code < 64) return MultiplyBytesUpTo<63>(args);
  }
  MultiplyBytesUpTo<127>(args);
}

template <int kLowBits, int kHighBits>
void MultiplyLookedUp(const QuantizedProduct& args) {
  using Codes = PanelCodes<kLowBits, kHighBits, true>;
  if (args.format->half_scales) {
    return MultiplyUnpackedScales<Codes, false, true, 0, kPackedTokens>(args);
  }
  MultiplyUnpackedScales<Codes, false, false, 0, kPackedTokens>(args);
}

// Codes as the panel has them, of the types whose scales are unpacked all the same, few tokens.
void MultiplyPackedCodes(const QuantizedProduct& args) {
  if (args.format->table == nullptr) {
    return MultiplyUnpackedScales<PanelCodes<2, 0>, false, false, 0, kPackedTokens>(args);
  }
  switch (args.format->low_bits) {
    case 1:
      return MultiplyUnpackedScales<PanelCodes<1, 0, true>, false, false, 0, kPackedTokens>(args);
    case 2:
      return MultiplyLookedUp<2, 1>(args);
    default:
      return MultiplyLookedUp<4, 0>(args);
  }
}

template <typename Codes, bool kSigned, int kMinima>
void MultiplyPlainScales(const QuantizedProduct& args) {
  MultiplyQuantizedTokens<Codes, kSigned, PlainScales, false, kMinima, kPackedTokens, true>(args);
}

template <typename Codes, bool kSigned, bool kHalfScales, int kMinima>
void MultiplyGroupScales(const QuantizedProduct& args) {
  MultiplyQuantizedTokens<Codes, kSigned, GroupScales, kHalfScales, kMinima, kPackedTokens, true>(
      args);
}

// Codes and scales as the panel has them, few tokens.
void MultiplyPanel(const QuantizedProduct& args) {
  const PanelFormat& format = *args.format;
  const bool plain = format.block_scale_bytes == 0;
  if (format.table != nullptr) {
    using Codes = PanelCodes<4, 0, true>;
    return plain ? MultiplyPlainScales<Codes, !kBiasedBytes, 0>(args)
                 : MultiplyGroupScales<Codes, !kBiasedBytes, false, 0>(args);
  }
  switch (format.low_bits + format.high_bits) {
    case 2:
      return MultiplyGroupScales<PanelCodes<2, 0>, false, true, 2>(args);
    case 3:
      return MultiplyGroupScales<PanelCodes<2, 1>, false, true, 0>(args);
    case 4:
      if (!plain) return MultiplyGroupScales<PanelCodes<4, 0>, false, false, 1>(args);
      return format.minima == 1 ? MultiplyPlainScales<PanelCodes<4, 0>, false, 1>(args)
                                : MultiplyPlainScales<PanelCodes<4, 0>, false, 0>(args);
    case 5:
      if (!plain) return MultiplyGroupScales<PanelCodes<4, 1>, false, false, 1>(args);
      return format.minima == 1 ? MultiplyPlainScales<PanelCodes<4, 1>, false, 1>(args)
                                : MultiplyPlainScales<PanelCodes<4, 1>, false, 0>(args);
    case 6:
      return MultiplyGroupScales<PanelCodes<4, 2>, false, true, 0>(args);
    default:
      return MultiplyPlainScales<ByteCodes<>, !kBiasedBytes, 0>(args);
  }
}

void MultiplyQuantized(const QuantizedProduct& args) {
  if (args.panel_scales) return MultiplyPanel(args);
  return args.packed ? MultiplyPackedCodes(args) : MultiplyByteCodes(args);
}

}  // namespace
}  // namespace lm

#endif  // LM_ENGINE_BACKEND_CPU_QUANTIZED_PRODUCT_KERNEL_H_
