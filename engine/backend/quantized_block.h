// The integers inside GGUF's quantised blocks: 32 weights of any type, decoded but not multiplied
// out. MatMul is specified on these (backend.h); DequantizeRow (gguf/block_format.h) is the same
// weights as floats.
#ifndef LM_ENGINE_BACKEND_QUANTIZED_BLOCK_H_
#define LM_ENGINE_BACKEND_QUANTIZED_BLOCK_H_

#include <cstdint>

#include "engine/tensor/dtype.h"

namespace lm {

// What the 32 weights of a type look like.
struct QuantizedTraits {
  int code_bits;        // bits of a code: 1 to 6, or 8
  int offset;           // q_w = code - offset, except where
  const int8_t* table;  // q_w = table[code]
  bool half_scales;     // two sub-blocks of 16, whose integer scales are multiplied into the sum
  int minima;           // 0: none; 1: one for the 32; 2: one for each 16
  bool block_scales;    // integer scales (and minima) beside d, as in all types of 256 a block
  bool bf16_scale;      // d is a BF16, not a binary16
  float unit = 1;       // of d: a power of two
};

// REQUIRES: Traits(dtype).quantised.
const QuantizedTraits& GetQuantizedTraits(DType dtype);

// What the codes of IQ4_NL and IQ4_XS stand for.
inline constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                          1,    13,   25,  38,  53,  69,  89,  113};

// Weight i, of half h = i / 16, is d * scale[h] * q_w + m * min[h], where q_w comes from codes[i].
struct QuantizedBlock {
  uint8_t codes[32];
  uint16_t d_bits;  // binary16, or BF16 where the type has that
  uint16_t m_bits;  // binary16; of types with minima
  bool negate_m;    // m is minus what m_bits says (the K types)
  int scale[2];     // equal unless half_scales; 1 where the type has none
  int min[2];       // equal unless minima == 2; 1 where the type has only m
};

// d of a block in its unit, as a number.
float BlockScale(const QuantizedTraits& traits, uint16_t d_bits);

// Decodes the weights [32 * index, 32 * index + 32) of a row that begins at `row`.
void DecodeQuantizedBlock(DType dtype, const void* row, int64_t index, QuantizedBlock* out);

}  // namespace lm

#endif  // LM_ENGINE_BACKEND_QUANTIZED_BLOCK_H_
