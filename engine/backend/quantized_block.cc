#include "engine/backend/quantized_block.h"

#include <cstring>

#include "engine/backend/quantized_block_layout.h"
#include "engine/base/float16.h"
#include "engine/gguf/coded_blocks.h"

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

void DecodeCodedBlock(DType dtype, const uint8_t* block, int part, QuantizedBlock* out) {
  CodedWeights coded;
  DecodeCodedWeights(dtype, block, part, &coded);
  std::memcpy(out->codes, coded.codes, sizeof(out->codes));
  SetScales(coded.scale[0], coded.scale[1], out);
  SetMinima(0, 0, out);
  out->d_bits = coded.d_bits;
  out->m_bits = 0;
  out->negate_m = false;
}

// The GGUF block that has the 32 weights of a row with this index, and which part of it they are.
struct BlockPart {
  BlockPart(DType dtype, const void* row, int64_t index) {
    const DTypeTraits& traits = Traits(dtype);
    const int parts = traits.block_size / 32;  // 1 to 8, a power of two
    part = static_cast<int>(index & (parts - 1));
    block = static_cast<const uint8_t*>(row) + index / parts * traits.block_bytes;
  }
  const uint8_t* block;
  int part;
};

}  // namespace

const QuantizedTraits& GetQuantizedTraits(DType dtype) {
  constexpr int kFirst = static_cast<int>(DType::kQ4_0);
  constexpr float kIq2Unit = CodeUnit(DType::kIQ2_S), kIq1Unit = CodeUnit(DType::kIQ1_S);
  // Indexed by DType from kQ4_0: bits, offset, table, half_scales, minima, block_scales,
  // bf16_scale, unit.
  static constexpr QuantizedTraits kTraits[kNumDTypes - kFirst] = {
      {4, 8, nullptr, false, 0, false, false},                                  // Q4_0
      {4, 0, nullptr, false, 1, false, false},                                  // Q4_1
      {5, 16, nullptr, false, 0, false, false},                                 // Q5_0
      {5, 0, nullptr, false, 1, false, false},                                  // Q5_1
      {8, 128, nullptr, false, 0, false, false},                                // Q8_0
      {2, 0, nullptr, true, 2, true, false},                                    // Q2_K
      {3, 4, nullptr, true, 0, true, false},                                    // Q3_K
      {4, 0, nullptr, false, 1, true, false},                                   // Q4_K
      {5, 0, nullptr, false, 1, true, false},                                   // Q5_K
      {6, 32, nullptr, true, 0, true, false},                                   // Q6_K
      {4, 0, kIq4Values, false, 0, false, false},                               // IQ4_NL
      {4, 0, kIq4Values, false, 0, true, false},                                // IQ4_XS
      {4, 0, kFp4Levels, false, 0, false, true},                                // MXFP4
      {4, 0, kFp4Levels, true, 0, true, false, kNvfp4Unit},                     // NVFP4
      {4, 0, kIq3XxsLevels, false, 0, true, false, CodeUnit(DType::kIQ3_XXS)},  // IQ3_XXS
      {4, 0, kIq3SLevels, false, 0, true, false},                               // IQ3_S
      {3, 0, kIq2Levels, false, 0, true, false, kIq2Unit},                      // IQ2_XXS
      {3, 0, kIq2Levels, true, 0, true, false, kIq2Unit},                       // IQ2_XS
      {3, 0, kIq2Levels, true, 0, true, false, kIq2Unit},                       // IQ2_S
      {3, 0, kIq1Levels, false, 0, true, false, kIq1Unit},                      // IQ1_S
      {3, 0, kIq1Levels, true, 0, true, false, kIq1Unit},                       // IQ1_M
      {2, 1, nullptr, false, 0, false, false},                                  // TQ1_0
      {2, 1, nullptr, false, 0, false, false},                                  // TQ2_0
      {1, 0, kBinaryLevels, false, 0, false, false},                            // Q1_0
      {2, 1, nullptr, false, 0, false, false},                                  // Q2_0
  };
  return kTraits[static_cast<int>(dtype) - kFirst];
}

float BlockScale(const QuantizedTraits& traits, uint16_t d_bits) {
  return traits.bf16_scale ? Bf16ToFloat(d_bits) : traits.unit * HalfToFloat(d_bits);
}

void DecodeQuantizedBlock(DType dtype, const void* row, int64_t index, QuantizedBlock* out) {
  const auto [block, part] = BlockPart(dtype, row, index);
  if (IsCoded(dtype)) return DecodeCodedBlock(dtype, block, part, out);
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
