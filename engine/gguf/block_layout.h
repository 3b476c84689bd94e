// The decoders of single blocks, by family; block_format.cc walks rows with them. A decoder reads
// one block (Traits(dtype).block_bytes bytes, at any alignment) and writes all its values.
//
// In all of them d and m are F16, numbers are little-endian, and the float operations are in the
// order written, each rounded to F32: ggml's own results, bit for bit.
#ifndef LM_ENGINE_GGUF_BLOCK_LAYOUT_H_
#define LM_ENGINE_GGUF_BLOCK_LAYOUT_H_

#include <cstdint>
#include <cstring>

#include "engine/base/float16.h"

namespace lm {

inline uint16_t LoadU16(const uint8_t* bytes) {
  uint16_t value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

inline uint32_t LoadU32(const uint8_t* bytes) {
  uint32_t value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

inline float LoadHalf(const uint8_t* bytes) { return HalfToFloat(LoadU16(bytes)); }

// legacy_blocks.cc: 32 values, one scale.
void DecodeQ4_0(const uint8_t* block, float* out);
void DecodeQ4_1(const uint8_t* block, float* out);
void DecodeQ5_0(const uint8_t* block, float* out);
void DecodeQ5_1(const uint8_t* block, float* out);
void DecodeQ8_0(const uint8_t* block, float* out);

// k_blocks.cc: 256 values, integer scales for groups of 16 or 32 of them.
void DecodeQ2_K(const uint8_t* block, float* out);
void DecodeQ3_K(const uint8_t* block, float* out);
void DecodeQ4_K(const uint8_t* block, float* out);
void DecodeQ5_K(const uint8_t* block, float* out);
void DecodeQ6_K(const uint8_t* block, float* out);

// iq4_blocks.cc: four bits choose from a table of 16 values.
void DecodeIQ4_NL(const uint8_t* block, float* out);
void DecodeIQ4_XS(const uint8_t* block, float* out);
void DecodeMXFP4(const uint8_t* block, float* out);

// The greatest scale of MXFP4, as the file has it, whose products with all codes are finite.
inline constexpr uint8_t kGreatestMxfp4Scale = 252;

// A scale of MXFP4: 2^(e - 128), as the bits of a BF16, which has them all.
constexpr uint16_t Mxfp4ScaleBits(uint8_t e) {
  return static_cast<uint16_t>(e < 2 ? 0x20 << e : (e - 1) << 7);
}

}  // namespace lm

#endif  // LM_ENGINE_GGUF_BLOCK_LAYOUT_H_
