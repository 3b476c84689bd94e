#include "engine/backend/quantized_block.h"

#include <cstring>

#include "engine/backend/quantized_block_layout.h"
#include "engine/base/float16.h"

namespace lm {
namespace {

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
  // Indexed by DType from kQ4_0: bits, offset, table, half_scales, minima, block_scales,
  // bf16_scale.
  static constexpr QuantizedTraits kTraits[] = {
      {4, 8, nullptr, false, 0, false, false},      // Q4_0
      {4, 0, nullptr, false, 1, false, false},      // Q4_1
      {5, 16, nullptr, false, 0, false, false},     // Q5_0
      {5, 0, nullptr, false, 1, false, false},      // Q5_1
      {8, 128, nullptr, false, 0, false, false},    // Q8_0
      {2, 0, nullptr, true, 2, true, false},        // Q2_K
      {3, 4, nullptr, true, 0, true, false},        // Q3_K
      {4, 0, nullptr, false, 1, true, false},       // Q4_K
      {5, 0, nullptr, false, 1, true, false},       // Q5_K
      {6, 32, nullptr, true, 0, true, false},       // Q6_K
      {4, 0, kIq4Values, false, 0, false, false},   // IQ4_NL
      {4, 0, kIq4Values, false, 0, true, false},    // IQ4_XS
      {4, 0, kMxfp4Values, false, 0, false, true},  // MXFP4
  };
  return kTraits[static_cast<int>(dtype) - static_cast<int>(DType::kQ4_0)];
}

float BlockScale(const QuantizedTraits& traits, uint16_t d_bits) {
  return traits.bf16_scale ? Bf16ToFloat(d_bits) : HalfToFloat(d_bits);
}

void DecodeQuantizedBlock(DType dtype, const void* row, int64_t index, QuantizedBlock* out) {
  const auto [block, part] = BlockPart(dtype, row, index);
  DecodeQuantizedScales(dtype, block, part, out);
  switch (dtype) {
    case DType::kQ4_0:
    case DType::kIQ4_NL:
      return DecodeNibbles(block + 2, out);
    case DType::kMXFP4:
      return DecodeNibbles(block + 1, out);
    case DType::kQ4_1:
      return DecodeNibbles(block + 4, out);
    case DType::kQ5_0:
      DecodeNibbles(block + 6, out);
      return AddFifthBits(LoadU32(block + 2), out);
    case DType::kQ5_1:
      DecodeNibbles(block + 8, out);
      return AddFifthBits(LoadU32(block + 4), out);
    case DType::kQ8_0:
      for (int i = 0; i < 32; ++i) out->codes[i] = block[2 + i] ^ 0x80;
      return;
    default:
      break;
  }
  const CodePlanes planes = FindCodePlanes(dtype, block, part);
  if (planes.nibbles != nullptr) return DecodeNibbles(planes.nibbles, out);
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
