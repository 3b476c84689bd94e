// Where GGUF's quantised blocks have their codes and scales, inline: with a constant type the
// compiler leaves nothing of the choices.
#ifndef LM_ENGINE_BACKEND_QUANTIZED_BLOCK_LAYOUT_H_
#define LM_ENGINE_BACKEND_QUANTIZED_BLOCK_LAYOUT_H_

#include <cstdint>

#include "engine/backend/quantized_block.h"
#include "engine/gguf/block_layout.h"

namespace lm {

// Where the 32 codes of a part of a block of 256 lie. In IQ4_XS byte i of `nibbles` has code i in
// its low half and code i + 16 in its high half. Q2_K to Q6_K have two planes of 32 bytes: byte i
// has the low 2 or 4 bits of code i from bit low_shift on, and its other bits, if any, from
// high_shift on.
struct CodePlanes {
  const uint8_t* nibbles = nullptr;
  const uint8_t* low = nullptr;
  const uint8_t* high = nullptr;  // null: there are no others
  int low_shift = 0;
  int high_shift = 0;
};

inline void SetScales(int scale0, int scale1, QuantizedBlock* out) {
  out->scale[0] = scale0;
  out->scale[1] = scale1;
}

inline void SetMinima(int min0, int min1, QuantizedBlock* out) {
  out->min[0] = min0;
  out->min[1] = min1;
}

// Q2_K: scales[16] (scale | min << 4), qs[64], d, dmin.
inline void DecodeQ2KScales(const uint8_t* block, int part, QuantizedBlock* out) {
  const uint8_t* scales = block + 2 * part;
  SetScales(scales[0] & 15, scales[1] & 15, out);
  SetMinima(scales[0] >> 4, scales[1] >> 4, out);
  out->d_bits = LoadU16(block + 80);
  out->m_bits = LoadU16(block + 82);
  out->negate_m = true;
}

// Q3_K: hmask[32], qs[64], scales[12], d. The 16 scales have 6 bits and stand for themselves less
// 32: the low four in bytes 0-7, the high two in 8-11.
inline void DecodeQ3KScales(const uint8_t* block, int part, QuantizedBlock* out) {
  const uint8_t* scales = block + 96;
  auto scale = [&](int i) {
    int low = i < 8 ? scales[i] & 15 : scales[i - 8] >> 4;
    return (low | (((scales[8 + i % 4] >> (2 * (i / 4))) & 3) << 4)) - 32;
  };
  SetScales(scale(2 * part), scale(2 * part + 1), out);
  out->d_bits = LoadU16(block + 108);
}

// Q4_K and Q5_K: d, dmin, scales[12]: eight 6-bit scales and eight 6-bit minima; qh[32] of Q5_K;
// qs[128].
inline void DecodeScalesAndMinima(const uint8_t* block, int part, QuantizedBlock* out) {
  const uint8_t* bytes = block + 4;
  int scale, min;
  if (part < 4) {
    scale = bytes[part] & 63;
    min = bytes[part + 4] & 63;
  } else {
    scale = (bytes[part + 4] & 15) | ((bytes[part - 4] >> 6) << 4);
    min = (bytes[part + 4] >> 4) | ((bytes[part] >> 6) << 4);
  }
  SetScales(scale, scale, out);
  SetMinima(min, min, out);
  out->d_bits = LoadU16(block);
  out->m_bits = LoadU16(block + 2);
  out->negate_m = true;
}

// Q6_K: ql[128], qh[64], scales[16] (int8), d.
inline void DecodeQ6KScales(const uint8_t* block, int part, QuantizedBlock* out) {
  const int8_t* scales = reinterpret_cast<const int8_t*>(block + 192) + 2 * part;
  SetScales(scales[0], scales[1], out);
  out->d_bits = LoadU16(block + 208);
}

// IQ4_XS: d, scales_h (16 bits), scales_l[4], qs[128]. Scales have 6 bits, less 32.
inline void DecodeIq4XsScales(const uint8_t* block, int part, QuantizedBlock* out) {
  int low = (block[4 + part / 2] >> (4 * (part % 2))) & 15;
  int high = (LoadU16(block + 2) >> (2 * part)) & 3;
  int scale = (low | (high << 4)) - 32;
  SetScales(scale, scale, out);
  out->d_bits = LoadU16(block);
}

// REQUIRES: a type with 256 weights a block; 0 <= part < 8.
inline CodePlanes FindCodePlanes(DType dtype, const uint8_t* block, int part) {
  const int quarter = part % 4;
  switch (dtype) {
    case DType::kQ2_K:
      return {.low = block + 16 + 32 * (part / 4), .low_shift = 2 * quarter};
    case DType::kQ3_K:
      return {.low = block + 32 + 32 * (part / 4),
              .high = block,
              .low_shift = 2 * quarter,
              .high_shift = part};
    case DType::kQ4_K:
      return {.low = block + 16 + 32 * (part / 2), .low_shift = 4 * (part % 2)};
    case DType::kQ5_K:
      return {.low = block + 48 + 32 * (part / 2),
              .high = block + 16,
              .low_shift = 4 * (part % 2),
              .high_shift = part};
    case DType::kQ6_K:
      return {.low = block + 64 * (part / 4) + 32 * (part % 2),
              .high = block + 128 + 32 * (part / 4),
              .low_shift = 4 * (quarter / 2),
              .high_shift = 2 * quarter};
    case DType::kIQ4_XS:
      return {.nibbles = block + 8 + 16 * part};
    default:
      return {};  // the caller's mistake
  }
}

// All of a block's part but the codes. Blocks of 32 weights have the part 0 only.
inline void DecodeQuantizedScales(DType dtype, const uint8_t* block, int part,
                                  QuantizedBlock* out) {
  SetScales(1, 1, out);
  SetMinima(0, 0, out);
  out->m_bits = 0;
  out->negate_m = false;
  switch (dtype) {
    case DType::kQ4_0:
    case DType::kIQ4_NL:
    case DType::kQ5_0:
    case DType::kQ8_0:
      out->d_bits = LoadU16(block);
      return;
    case DType::kMXFP4:
      out->d_bits = Mxfp4ScaleBits(block[0]);
      return;
    case DType::kQ4_1:
    case DType::kQ5_1:
      out->d_bits = LoadU16(block);
      out->m_bits = LoadU16(block + 2);
      SetMinima(1, 1, out);
      return;
    case DType::kQ2_K:
      return DecodeQ2KScales(block, part, out);
    case DType::kQ3_K:
      return DecodeQ3KScales(block, part, out);
    case DType::kQ4_K:
    case DType::kQ5_K:
      return DecodeScalesAndMinima(block, part, out);
    case DType::kQ6_K:
      return DecodeQ6KScales(block, part, out);
    case DType::kIQ4_XS:
      return DecodeIq4XsScales(block, part, out);
    default:
      return;  // not a block type: the caller's mistake
  }
}

}  // namespace lm

#endif  // LM_ENGINE_BACKEND_QUANTIZED_BLOCK_LAYOUT_H_
