// Panels (panel_format.h) to what the product kernel reads, and activations to records. Included by
// kernels_*.cc after a simd_*.h.
#ifndef LM_ENGINE_BACKEND_CPU_UNPACK_KERNEL_H_
#define LM_ENGINE_BACKEND_CPU_UNPACK_KERNEL_H_

#include "engine/backend/cpu/cpu_kernels.h"
#include "engine/backend/cpu/panel_codes.h"
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

inline F32x16 LoadHalves(const uint8_t* p) {
  uint16_t halves[kPanelRows];
  __builtin_memcpy(halves, p, sizeof(halves));
  return F32x16::LoadHalf(halves);
}

inline F32x16 LoadBf16s(const uint8_t* p) {
  uint16_t halves[kPanelRows];
  __builtin_memcpy(halves, p, sizeof(halves));
  return F32x16::LoadBf16(halves);
}

// 16 bytes, (byte >> shift) & 15, as floats.
inline F32x16 LoadNibbles(const uint8_t* p, int shift) {
  int8_t nibbles[kPanelRows];
  for (int i = 0; i < kPanelRows; ++i) nibbles[i] = (p[i] >> shift) & 15;
  return F32x16::LoadI8(nibbles);
}

inline F32x16 LoadBytes(const uint8_t* p) {
  return F32x16::LoadI8(reinterpret_cast<const int8_t*>(p));
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

// The 32 values' own integer scales and minima, at `own`, with their group's d and m.
inline void UnpackBlockScales(const PanelFormat& format, const uint8_t* own, F32x16 d, F32x16 m,
                              float* out) {
  const uint8_t* second = own + kPanelRows;
  if (!format.half_scales) {
    (d * LoadBytes(own)).Store(out);
    if (format.minima == 1) (m * LoadBytes(second)).Store(out + kPanelRows);
    return;
  }
  d.Store(out);
  if (format.minima == 0) {
    LoadBytes(own).Store(out + kPanelRows);
    LoadBytes(second).Store(out + 2 * kPanelRows);
    return;
  }
  LoadNibbles(own, 0).Store(out + kPanelRows);
  LoadNibbles(second, 0).Store(out + 2 * kPanelRows);
  (m * LoadNibbles(own, 4)).Store(out + 3 * kPanelRows);
  (m * LoadNibbles(second, 4)).Store(out + 4 * kPanelRows);
}

void UnpackScales(const PanelFormat& format, const uint8_t* scales, int64_t num_blocks, float* out,
                  int64_t out_step) {
  if (format.block_scale_bytes == 0) {
    return UnpackPlainScales(format, scales, num_blocks, out, out_step);
  }
  if (format.e4m3_scales) return UnpackE4m3Scales(format, scales, num_blocks, out, out_step);
  for (int64_t b = 0; b < num_blocks; b += format.blocks_per_group) {
    F32x16 d = LoadHalves(scales) * F32x16::Set(format.unit);
    F32x16 m = F32x16::Zero();
    const uint8_t* own = scales + 2 * kPanelRows;
    if (format.minima > 0) {
      m = F32x16::Zero() - LoadHalves(own);
      own += 2 * kPanelRows;
    }
    for (int i = 0; i < format.blocks_per_group; ++i) {
      UnpackBlockScales(format, own, d, m, out);
      own += format.block_scale_bytes;
      out += out_step;
    }
    scales += format.scale_step;
  }
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
