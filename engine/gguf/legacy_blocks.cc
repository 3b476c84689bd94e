// The blocks of 32 values with a scale of their own: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0.
//
// Four-bit parts pair values 16 apart: byte j of qs holds value j in its low half and value j + 16
// in its high half.
#include "engine/gguf/block_layout.h"

namespace lm {
namespace {
constexpr int kHalf = 16;  // values
}  // namespace

//   d F16 | qs 16 bytes
//   x = (q - 8) d,  0 <= q < 16
void DecodeQ4_0(const uint8_t* block, float* out) {
  const float d = LoadHalf(block);
  const uint8_t* qs = block + 2;
  for (int j = 0; j < kHalf; ++j) {
    out[j] = static_cast<float>((qs[j] & 15) - 8) * d;
    out[j + kHalf] = static_cast<float>((qs[j] >> 4) - 8) * d;
  }
}

//   d F16 | m F16 | qs 16 bytes
//   x = q d + m,  0 <= q < 16
void DecodeQ4_1(const uint8_t* block, float* out) {
  const float d = LoadHalf(block);
  const float m = LoadHalf(block + 2);
  const uint8_t* qs = block + 4;
  for (int j = 0; j < kHalf; ++j) {
    out[j] = static_cast<float>(qs[j] & 15) * d + m;
    out[j + kHalf] = static_cast<float>(qs[j] >> 4) * d + m;
  }
}

//   d F16 | qh 32 bits | qs 16 bytes
//   x = (q - 16) d,  0 <= q < 32: bit j of qh is the fifth bit of value j
void DecodeQ5_0(const uint8_t* block, float* out) {
  const float d = LoadHalf(block);
  const uint32_t qh = LoadU32(block + 2);
  const uint8_t* qs = block + 6;
  for (int j = 0; j < kHalf; ++j) {
    int low = (qs[j] & 15) | static_cast<int>(qh >> j & 1) << 4;
    int high = (qs[j] >> 4) | static_cast<int>(qh >> (j + kHalf) & 1) << 4;
    out[j] = static_cast<float>(low - 16) * d;
    out[j + kHalf] = static_cast<float>(high - 16) * d;
  }
}

//   d F16 | m F16 | qh 32 bits | qs 16 bytes
//   x = q d + m,  0 <= q < 32, the fifth bits as in Q5_0
void DecodeQ5_1(const uint8_t* block, float* out) {
  const float d = LoadHalf(block);
  const float m = LoadHalf(block + 2);
  const uint32_t qh = LoadU32(block + 4);
  const uint8_t* qs = block + 8;
  for (int j = 0; j < kHalf; ++j) {
    int low = (qs[j] & 15) | static_cast<int>(qh >> j & 1) << 4;
    int high = (qs[j] >> 4) | static_cast<int>(qh >> (j + kHalf) & 1) << 4;
    out[j] = static_cast<float>(low) * d + m;
    out[j + kHalf] = static_cast<float>(high) * d + m;
  }
}

//   d F16 | qs 32 bytes
//   x = q d,  -128 <= q < 128
void DecodeQ8_0(const uint8_t* block, float* out) {
  const float d = LoadHalf(block);
  const uint8_t* qs = block + 2;
  for (int j = 0; j < 2 * kHalf; ++j) out[j] = static_cast<float>(static_cast<int8_t>(qs[j])) * d;
}

}  // namespace lm
