#include "engine/backend/quantized_block.h"

#include <cstring>

#include "engine/backend/quantized_block_layout.h"

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

void DecodeQuantizedBlock(DType dtype, const void* row, int64_t index, QuantizedBlock* out) {
  const auto [block, part] = BlockPart(dtype, row, index);
  DecodeQuantizedScales(dtype, block, part, out);
  switch (dtype) {
    case DType::kQ4_0:
    case DType::kIQ4_NL:
      return DecodeNibbles(block + 2, out);
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
