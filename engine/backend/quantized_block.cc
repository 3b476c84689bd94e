#include "engine/backend/quantized_block.h"

#include <cstring>

namespace lm {
namespace {

uint16_t Load16(const uint8_t* p) {
  uint16_t value;
  std::memcpy(&value, p, sizeof(value));
  return value;
}

uint32_t Load32(const uint8_t* p) {
  uint32_t value;
  std::memcpy(&value, p, sizeof(value));
  return value;
}

void SetScales(int scale0, int scale1, QuantizedBlock* out) {
  out->scale[0] = scale0;
  out->scale[1] = scale1;
}

void SetMinima(int min0, int min1, QuantizedBlock* out) {
  out->min[0] = min0;
  out->min[1] = min1;
}

// 16 bytes hold 32 codes: value i in the low half of byte i, value i + 16 in its high half.
void DecodeNibbles(const uint8_t* bytes, QuantizedBlock* out) {
  for (int i = 0; i < 16; ++i) {
    out->codes[i] = bytes[i] & 15;
    out->codes[i + 16] = bytes[i] >> 4;
  }
}

// Bit i of `high` is bit 4 of value i.
void AddFifthBits(uint32_t high, QuantizedBlock* out) {
  constexpr uint64_t kEachByte = 0x0101010101010101;
  for (int i = 0; i < 4; ++i) {  // eight codes at a time
    // Bit j of the eight to byte j, first as bit j of it, then as bit 0.
    const uint64_t apart = ((high >> (8 * i)) & 0xff) * kEachByte & 0x8040201008040201;
    const uint64_t bits = ((apart + 0x7f * kEachByte) >> 7) & kEachByte;
    uint64_t codes;
    std::memcpy(&codes, out->codes + 8 * i, sizeof(codes));
    codes |= bits << 4;
    std::memcpy(out->codes + 8 * i, &codes, sizeof(codes));
  }
}

// Q2_K: scales[16] (scale | min << 4), qs[64], d, dmin.
void DecodeQ2KScales(const uint8_t* block, int part, QuantizedBlock* out) {
  const uint8_t* scales = block + 2 * part;
  SetScales(scales[0] & 15, scales[1] & 15, out);
  SetMinima(scales[0] >> 4, scales[1] >> 4, out);
  out->d_bits = Load16(block + 80);
  out->m_bits = Load16(block + 82);
  out->negate_m = true;
}

// Q3_K: hmask[32], qs[64], scales[12], d. The 16 scales have 6 bits and stand for themselves less
// 32: the low four in bytes 0-7, the high two in 8-11.
void DecodeQ3KScales(const uint8_t* block, int part, QuantizedBlock* out) {
  const uint8_t* scales = block + 96;
  auto scale = [&](int i) {
    int low = i < 8 ? scales[i] & 15 : scales[i - 8] >> 4;
    return (low | (((scales[8 + i % 4] >> (2 * (i / 4))) & 3) << 4)) - 32;
  };
  SetScales(scale(2 * part), scale(2 * part + 1), out);
  out->d_bits = Load16(block + 108);
}

// Q4_K and Q5_K: d, dmin, scales[12]: eight 6-bit scales and eight 6-bit minima; qh[32] of Q5_K;
// qs[128].
void DecodeScalesAndMinima(const uint8_t* block, int part, QuantizedBlock* out) {
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
  out->d_bits = Load16(block);
  out->m_bits = Load16(block + 2);
  out->negate_m = true;
}

// Q6_K: ql[128], qh[64], scales[16] (int8), d.
void DecodeQ6KScales(const uint8_t* block, int part, QuantizedBlock* out) {
  const int8_t* scales = reinterpret_cast<const int8_t*>(block + 192) + 2 * part;
  SetScales(scales[0], scales[1], out);
  out->d_bits = Load16(block + 208);
}

// IQ4_XS: d, scales_h (16 bits), scales_l[4], qs[128]. Scales have 6 bits, less 32.
void DecodeIq4XsScales(const uint8_t* block, int part, QuantizedBlock* out) {
  int low = (block[4 + part / 2] >> (4 * (part % 2))) & 15;
  int high = (Load16(block + 2) >> (2 * part)) & 3;
  int scale = (low | (high << 4)) - 32;
  SetScales(scale, scale, out);
  out->d_bits = Load16(block);
}

// The GGUF block that has the 32 weights of a row with this index, and which part of it they are.
struct BlockPart {
  BlockPart(DType dtype, const void* row, int64_t index) {
    const DTypeTraits& traits = Traits(dtype);
    constexpr int64_t kParts = 8;  // of a block of 256; the other blocks have 32 weights
    const bool whole = traits.block_size == 32;
    part = whole ? 0 : static_cast<int>(index % kParts);
    block =
        static_cast<const uint8_t*>(row) + (whole ? index : index / kParts) * traits.block_bytes;
  }
  const uint8_t* block;
  int part;
};

}  // namespace

const QuantizedTraits& GetQuantizedTraits(DType dtype) {
  // Indexed by DType from kQ4_0: bits, offset, table, half_scales, minima, block_scales.
  static constexpr QuantizedTraits kTraits[] = {
      {4, 8, false, false, 0, false},    // Q4_0
      {4, 0, false, false, 1, false},    // Q4_1
      {5, 16, false, false, 0, false},   // Q5_0
      {5, 0, false, false, 1, false},    // Q5_1
      {8, 128, false, false, 0, false},  // Q8_0
      {2, 0, false, true, 2, true},      // Q2_K
      {3, 4, false, true, 0, true},      // Q3_K
      {4, 0, false, false, 1, true},     // Q4_K
      {5, 0, false, false, 1, true},     // Q5_K
      {6, 32, false, true, 0, true},     // Q6_K
      {4, 0, true, false, 0, false},     // IQ4_NL
      {4, 0, true, false, 0, true},      // IQ4_XS
  };
  return kTraits[static_cast<int>(dtype) - static_cast<int>(DType::kQ4_0)];
}

CodePlanes FindCodePlanes(DType dtype, const void* row, int64_t index) {
  const auto [block, part] = BlockPart(dtype, row, index);
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
    default:
      return {};
  }
}

void DecodeQuantizedScales(DType dtype, const void* row, int64_t index, QuantizedBlock* out) {
  const auto [block, part] = BlockPart(dtype, row, index);
  SetScales(1, 1, out);
  SetMinima(0, 0, out);
  out->m_bits = 0;
  out->negate_m = false;
  switch (dtype) {
    case DType::kQ4_0:
    case DType::kIQ4_NL:
    case DType::kQ5_0:
    case DType::kQ8_0:
      out->d_bits = Load16(block);
      return;
    case DType::kQ4_1:
    case DType::kQ5_1:
      out->d_bits = Load16(block);
      out->m_bits = Load16(block + 2);
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

void DecodeQuantizedBlock(DType dtype, const void* row, int64_t index, QuantizedBlock* out) {
  DecodeQuantizedScales(dtype, row, index, out);
  const auto [block, part] = BlockPart(dtype, row, index);
  switch (dtype) {
    case DType::kQ4_0:
    case DType::kIQ4_NL:
      return DecodeNibbles(block + 2, out);
    case DType::kQ4_1:
      return DecodeNibbles(block + 4, out);
    case DType::kQ5_0:
      DecodeNibbles(block + 6, out);
      return AddFifthBits(Load32(block + 2), out);
    case DType::kQ5_1:
      DecodeNibbles(block + 8, out);
      return AddFifthBits(Load32(block + 4), out);
    case DType::kQ8_0:
      for (int i = 0; i < 32; ++i) out->codes[i] = block[2 + i] ^ 0x80;
      return;
    case DType::kIQ4_XS:
      return DecodeNibbles(block + 8 + 16 * part, out);
    default:
      break;
  }
  const CodePlanes planes = FindCodePlanes(dtype, row, index);
  const int code_bits = GetQuantizedTraits(dtype).code_bits;
  const int low_bits = code_bits < 4 ? 2 : 4;
  for (int i = 0; i < 32; ++i) {
    out->codes[i] = (planes.low[i] >> planes.low_shift) & ((1 << low_bits) - 1);
  }
  if (planes.high == nullptr) return;
  for (int i = 0; i < 32; ++i) {
    const int high = (planes.high[i] >> planes.high_shift) & ((1 << (code_bits - low_bits)) - 1);
    out->codes[i] |= high << low_bits;
  }
}

}  // namespace lm
