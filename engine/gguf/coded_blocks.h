// Types whose weights are small integers of a table, the levels. A block has their codes as such
// (NVFP4, Q1_0, Q2_0), as digits of numbers to the base 3 (TQ1_0), or by the run, from a codebook
// (IQ1 to IQ3: the vectors of a lattice, and signs; after Tseng et al. 2024, arXiv 2402.04396).
#ifndef LM_ENGINE_GGUF_CODED_BLOCKS_H_
#define LM_ENGINE_GGUF_CODED_BLOCKS_H_

#include <cstdint>

#include "engine/tensor/dtype.h"

namespace lm {

// Weight v of the 32 is (unit d) scale[v / 16] levels[codes[v]]: exact in F32, whatever comes
// first.
struct CodedWeights {
  uint8_t codes[32];
  uint16_t d_bits;  // F16
  int scale[2];
};

constexpr bool IsCoded(DType dtype) { return dtype >= DType::kNVFP4; }

// By code; a code's highest bit is its sign, but in IQ1 that of the eighth by which a level is off.
inline constexpr int8_t kFp4Levels[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
inline constexpr int8_t kIq3XxsLevels[16] = {4,  12,  20,  28,  36,  44,  52,  62,
                                             -4, -12, -20, -28, -36, -44, -52, -62};
inline constexpr int8_t kIq3SLevels[16] = {1,  3,  5,  7,  9,  11,  13,  15,
                                           -1, -3, -5, -7, -9, -11, -13, -15};
inline constexpr int8_t kIq2Levels[16] = {8, 25, 43, 0, -8, -25, -43, 0};
inline constexpr int8_t kIq1Levels[16] = {-7, 1, 9, 0, -9, -1, 7, 0};
inline constexpr int8_t kTernaryLevels[16] = {-1, 0, 1, 2};
inline constexpr int8_t kBinaryLevels[16] = {-1, 1};

// Half of a float of 4 exponent bits with bias 7 and 3 fraction bits (E4M3): NVFP4's scales are
// such, 127 being 0. Its bits in a block, and what they are as an integer and as its unit.
inline constexpr float kNvfp4Unit = 0x1p-10f;
constexpr uint8_t Nvfp4ScaleBits(const uint8_t* block, int sixteen) {
  return block[sixteen] == 0x7f ? 0 : block[sixteen] & 0x7f;
}
constexpr int Nvfp4Scale(uint8_t bits) {
  const int exponent = bits >> 3 & 15, fraction = bits & 7;
  return exponent == 0 ? fraction : (8 + fraction) << (exponent - 1);
}

constexpr float CodeUnit(DType dtype) {
  switch (dtype) {
    case DType::kNVFP4:
      return kNvfp4Unit;
    case DType::kIQ3_XXS:
      return 0.25f;
    case DType::kIQ2_XXS:
    case DType::kIQ2_XS:
    case DType::kIQ2_S:
    case DType::kIQ1_S:
    case DType::kIQ1_M:
      return 0.125f;
    default:
      return 1;
  }
}

constexpr const int8_t* CodeLevels(DType dtype) {
  switch (dtype) {
    case DType::kNVFP4:
      return kFp4Levels;
    case DType::kIQ3_XXS:
      return kIq3XxsLevels;
    case DType::kIQ3_S:
      return kIq3SLevels;
    case DType::kIQ2_XXS:
    case DType::kIQ2_XS:
    case DType::kIQ2_S:
      return kIq2Levels;
    case DType::kIQ1_S:
    case DType::kIQ1_M:
      return kIq1Levels;
    case DType::kQ1_0:
      return kBinaryLevels;
    default:
      return kTernaryLevels;
  }
}

// d of an IQ1_M block, which has its bits in four places.
uint16_t Iq1MScaleBits(const uint8_t* block);

// Decodes the 32 weights `part` of a block. REQUIRES: IsCoded(dtype).
void DecodeCodedWeights(DType dtype, const uint8_t* block, int part, CodedWeights* out);

}  // namespace lm

#endif  // LM_ENGINE_GGUF_CODED_BLOCKS_H_
