// The K-quants: blocks of 256 values in groups of 16 or 32, each group with a small integer scale
// (and in some a minimum) that multiplies the block's F16 ones.
//
// Below, v is a value's index in its block, and the fields stand in the order of the bytes.
#include "engine/gguf/block_layout.h"

namespace lm {
namespace {

constexpr int kValues = 256;

// The scale and the minimum of group g (of 8) in Q4_K and Q5_K: 16 numbers of 6 bits in 12 bytes.
// Groups 0 to 3 take the low 6 bits of byte g (scale) and byte g + 4 (minimum). Groups 4 to 7 take
// their low 4 bits from the halves of byte g + 4, and their high 2 bits from what the first groups
// left over at the top of bytes g - 4 and g.
struct ScaleMin {
  int scale;
  int min;
};
ScaleMin UnpackScaleMin(const uint8_t* packed, int g) {
  if (g < 4) return {packed[g] & 63, packed[g + 4] & 63};
  return {(packed[g + 4] & 15) | (packed[g - 4] >> 6) << 4, packed[g + 4] >> 4 | (packed[g] >> 6)
                                                                                     << 4};
}

}  // namespace

//   scales 16 bytes | qs 64 bytes | d F16 | dmin F16
//   x = (d s) q - dmin m,  0 <= q < 4
// Group v / 16 has s in the low half of its byte of scales and m in the high half. The 128 values
// of each half of the block share 32 bytes of qs: value v is bits 2 (v % 128 / 32) of byte v % 32.
void DecodeQ2_K(const uint8_t* block, float* out) {
  const uint8_t* scales = block;
  const uint8_t* qs = block + 16;
  const float d = LoadHalf(block + 80);
  const float dmin = LoadHalf(block + 82);
  for (int v = 0; v < kValues; ++v) {
    const int q = qs[v / 128 * 32 + v % 32] >> v % 128 / 32 * 2 & 3;
    const float scale = d * static_cast<float>(scales[v / 16] & 15);
    const float min = dmin * static_cast<float>(scales[v / 16] >> 4);
    out[v] = scale * static_cast<float>(q) - min;
  }
}

//   hmask 32 bytes | qs 64 bytes | scales 12 bytes | d F16
//   x = (d (s - 32)) (q - 4),  0 <= q < 8, 0 <= s < 64
// The low 2 bits of q are packed as in Q2_K; the third is bit v / 32 of hmask[v % 32]. Of the scale
// of group g = v / 16, the low 4 bits are half g / 8 of byte g % 8, and the high 2 bits are bits
// 2 (g / 4) of byte 8 + g % 4.
void DecodeQ3_K(const uint8_t* block, float* out) {
  const uint8_t* hmask = block;
  const uint8_t* qs = block + 32;
  const uint8_t* scales = block + 96;
  const float d = LoadHalf(block + 108);
  for (int g = 0; g < kValues / 16; ++g) {
    const int s = (scales[g % 8] >> g / 8 * 4 & 15) | (scales[8 + g % 4] >> g / 4 * 2 & 3) << 4;
    const float scale = d * static_cast<float>(s - 32);
    for (int v = g * 16; v < g * 16 + 16; ++v) {
      const int q =
          (qs[v / 128 * 32 + v % 32] >> v % 128 / 32 * 2 & 3) | (hmask[v % 32] >> v / 32 & 1) << 2;
      out[v] = scale * static_cast<float>(q - 4);
    }
  }
}

//   d F16 | dmin F16 | scales 12 bytes | qs 128 bytes
//   x = (d s) q - dmin m,  0 <= q < 16, s and m as above for group v / 32
// Two groups share 32 bytes of qs: the even one has the low halves, the odd one the high halves.
void DecodeQ4_K(const uint8_t* block, float* out) {
  const float d = LoadHalf(block);
  const float dmin = LoadHalf(block + 2);
  const uint8_t* qs = block + 16;
  for (int g = 0; g < kValues / 32; ++g) {
    const ScaleMin group = UnpackScaleMin(block + 4, g);
    const float scale = d * static_cast<float>(group.scale);
    const float min = dmin * static_cast<float>(group.min);
    for (int j = 0; j < 32; ++j) {
      const int q = qs[g / 2 * 32 + j] >> g % 2 * 4 & 15;
      out[g * 32 + j] = scale * static_cast<float>(q) - min;
    }
  }
}

//   d F16 | dmin F16 | scales 12 bytes | qh 32 bytes | qs 128 bytes
//   x = (d s) q - dmin m,  0 <= q < 32
// As Q4_K, with bit g of qh[j] the fifth bit of value j of group g.
void DecodeQ5_K(const uint8_t* block, float* out) {
  const float d = LoadHalf(block);
  const float dmin = LoadHalf(block + 2);
  const uint8_t* qh = block + 16;
  const uint8_t* qs = block + 48;
  for (int g = 0; g < kValues / 32; ++g) {
    const ScaleMin group = UnpackScaleMin(block + 4, g);
    const float scale = d * static_cast<float>(group.scale);
    const float min = dmin * static_cast<float>(group.min);
    for (int j = 0; j < 32; ++j) {
      const int q = (qs[g / 2 * 32 + j] >> g % 2 * 4 & 15) | (qh[j] >> g & 1) << 4;
      out[g * 32 + j] = scale * static_cast<float>(q) - min;
    }
  }
}

//   ql 128 bytes | qh 64 bytes | scales 16 signed bytes | d F16
//   x = (d s) (q - 32),  0 <= q < 64, s for group v / 16
// The low 4 bits of q: of the 64 bytes of ql that each half of the block has, the low halves hold
// its first 64 values and the high halves the others. The high 2 bits are packed as Q2_K's qs.
void DecodeQ6_K(const uint8_t* block, float* out) {
  const uint8_t* ql = block;
  const uint8_t* qh = block + 128;
  const uint8_t* scales = block + 192;
  const float d = LoadHalf(block + 208);
  for (int g = 0; g < kValues / 16; ++g) {
    const float scale = d * static_cast<float>(static_cast<int8_t>(scales[g]));
    for (int v = g * 16; v < g * 16 + 16; ++v) {
      const int q = (ql[v / 128 * 64 + v % 64] >> v % 128 / 64 * 4 & 15) |
                    (qh[v / 128 * 32 + v % 32] >> v % 128 / 32 * 2 & 3) << 4;
      out[v] = scale * static_cast<float>(q - 32);
    }
  }
}

}  // namespace lm
