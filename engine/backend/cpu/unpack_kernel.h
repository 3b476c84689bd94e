// Panels (panel_format.h) to what the product kernel reads, and activations to records. Included by
// kernels_*.cc after a simd_*.h.
#ifndef LM_ENGINE_BACKEND_CPU_UNPACK_KERNEL_H_
#define LM_ENGINE_BACKEND_CPU_UNPACK_KERNEL_H_

#include "engine/backend/cpu/cpu_kernels.h"
#include "engine/backend/cpu/panel_codes.h"
#include "engine/backend/cpu/panel_scales.h"
#include "engine/backend/cpu/prefetch.h"

namespace lm {
namespace {

template <typename Codes>
void UnpackCodesAs(const PanelFormat& format, const uint8_t* codes, int64_t num_blocks,
                   uint8_t* out, int64_t out_step) {
  const uint8_t* table = format.biased_table;
  for (int64_t b = 0; b < num_blocks; ++b) {
    PrefetchAhead(codes, Codes::kBlockBytes);
#pragma GCC unroll 8
    for (int g = 0; g < kGroups; ++g) Codes::Load(codes, g, table).Store(out + 64 * g);
    codes += kPanelsAPair * Codes::kBlockBytes;
    out += out_step;
  }
}

void UnpackCodes(const PanelFormat& format, const uint8_t* codes, int64_t num_blocks, uint8_t* out,
                 int64_t out_step) {
  if (format.table != nullptr) {
    switch (format.low_bits) {
      case 1:
        return UnpackCodesAs<PanelCodes<1, 0, true>>(format, codes, num_blocks, out, out_step);
      case 2:
        return UnpackCodesAs<PanelCodes<2, 1, true>>(format, codes, num_blocks, out, out_step);
      default:
        return UnpackCodesAs<PanelCodes<4, 0, true>>(format, codes, num_blocks, out, out_step);
    }
  }
  switch (format.low_bits + format.high_bits) {
    case 2:
      return UnpackCodesAs<PanelCodes<2, 0>>(format, codes, num_blocks, out, out_step);
    case 3:
      return UnpackCodesAs<PanelCodes<2, 1>>(format, codes, num_blocks, out, out_step);
    case 4:
      return UnpackCodesAs<PanelCodes<4, 0>>(format, codes, num_blocks, out, out_step);
    case 5:
      return UnpackCodesAs<PanelCodes<4, 1>>(format, codes, num_blocks, out, out_step);
    case 6:
      return UnpackCodesAs<PanelCodes<4, 2>>(format, codes, num_blocks, out, out_step);
    default:
      return UnpackCodesAs<ByteCodes<>>(format, codes, num_blocks, out, out_step);
  }
}

// There are no scales but d and m.
void UnpackPlainScales(const PanelFormat& format, const uint8_t* scales, int64_t num_blocks,
                       float* out, int64_t out_step) {
  for (int64_t b = 0; b < num_blocks; b += format.blocks_per_group) {
    const F32x16 d = format.bf16_scale ? LoadBf16s(scales) : LoadHalves(scales);
    for (int i = 0; i < format.blocks_per_group; ++i) {
      d.Store(out);
      if (format.minima == 1) LoadHalves(scales + 2 * kPanelRows).Store(out + kPanelRows);
      out += out_step;
    }
    scales += format.scale_step;
  }
}

// NVFP4's scales, as integers: as binary16 their bits stand for 2^-17 of that.
inline F32x16 LoadE4m3s(const uint8_t* p) {
  uint16_t halves[kPanelRows];
  for (int i = 0; i < kPanelRows; ++i) halves[i] = static_cast<uint16_t>(p[i] << 7);
  return F32x16::LoadHalf(halves) * F32x16::Set(0x1p17f);
}

void UnpackE4m3Scales(const PanelFormat& format, const uint8_t* scales, int64_t num_blocks,
                      float* out, int64_t out_step) {
  const F32x16 unit = F32x16::Set(format.unit);
  for (int64_t b = 0; b < num_blocks; ++b) {
    const uint8_t* own = scales + b / format.blocks_per_group * format.scale_step +
                         b % format.blocks_per_group * format.block_scale_bytes;
    unit.Store(out);
    LoadE4m3s(own).Store(out + kPanelRows);
    LoadE4m3s(own + kPanelRows).Store(out + 2 * kPanelRows);
    out += out_step;
  }
}

template <bool kHalfScales, int kMinima>
void UnpackGroupScales(const PanelFormat& format, const uint8_t* scales, int64_t num_blocks,
                       float* out, int64_t out_step) {
  GroupScales<kHalfScales, kMinima, 1> block;
  block.Begin(format, scales, false);
  for (int64_t b = 0; b < num_blocks; ++b) {
    block.Next();
#pragma GCC unroll 8
    for (int i = 0; i < 1 + (kHalfScales ? 2 : 0) + kMinima; ++i) {
      block.Get(0, i).Store(out + i * kPanelRows);
    }
    out += out_step;
  }
}

void UnpackScales(const PanelFormat& format, const uint8_t* scales, int64_t num_blocks, float* out,
                  int64_t out_step) {
  if (format.block_scale_bytes == 0) {
    return UnpackPlainScales(format, scales, num_blocks, out, out_step);
  }
  if (format.e4m3_scales) return UnpackE4m3Scales(format, scales, num_blocks, out, out_step);
  if (format.half_scales && format.minima == 2) {
    return UnpackGroupScales<true, 2>(format, scales, num_blocks, out, out_step);
  }
  if (format.half_scales) {
    return UnpackGroupScales<true, 0>(format, scales, num_blocks, out, out_step);
  }
  if (format.minima == 1) {
    return UnpackGroupScales<false, 1>(format, scales, num_blocks, out, out_step);
  }
  UnpackGroupScales<false, 0>(format, scales, num_blocks, out, out_step);
}

void QuantizeActivations(const PanelFormat& format, const float* x, int64_t num_blocks,
                         ActivationRecord* out, int64_t stride) {
  constexpr uint32_t kInfinityBits = 0x7f800000u;
  // Signed bytes that the dot product takes as such need nothing taken away.
  int bias = format.signed_bytes && !kBiasedBytes ? 0 : format.bias;
  for (int64_t b = 0; b < num_blocks; ++b) {
    ActivationVector block(x + 32 * b);
    ActivationRecord& record = out[b * stride];
    uint32_t max_bits = block.MaxBits();
    float max;
    __builtin_memcpy(&max, &max_bits, sizeof(max));
    float inverse = 127.0f / max;
    bool usable = max_bits < kInfinityBits && inverse < __builtin_inff();
    int32_t sums[2] = {0, 0};
    if (usable) {
      block.Quantize(inverse, record.q, sums);
      record.s = max / 127.0f;
    } else {
      __builtin_memset(record.q, 0, sizeof(record.q));
      record.s = max_bits < kInfinityBits ? 0.0f : __builtin_nanf("");
    }
    if (!format.half_scales) sums[0] += sums[1];
    for (int half = 0; half < 2; ++half) {
      record.start[half] = -bias * sums[half];
      record.weighted_sum[half] = record.s * static_cast<float>(sums[half]);
    }
  }
}

}  // namespace
}  // namespace lm

#endif  // LM_ENGINE_BACKEND_CPU_UNPACK_KERNEL_H_
