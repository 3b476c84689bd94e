// IQ4_NL, IQ4_XS and MXFP4: four bits choose one of 16 values that lie closer together near zero,
// where most weights are. Pairs of values share bytes as in legacy_blocks.cc.
#include "engine/base/float16.h"
#include "engine/gguf/block_layout.h"

namespace lm {
namespace {

constexpr float kLevels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                               1,    13,   25,  38,  53,  69,  89,  113};

// Twice what four bits are as floats of 1 sign, 2 exponent and 1 fraction bit.
constexpr float kFloatLevels[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// 32 values: scale * levels[q].
void DecodeLevels(const uint8_t* qs, float scale, float* out, const float* levels = kLevels) {
  for (int j = 0; j < 16; ++j) {
    out[j] = scale * levels[qs[j] & 15];
    out[j + 16] = scale * levels[qs[j] >> 4];
  }
}

}  // namespace

//   d F16 | qs 16 bytes
//   x = d level(q), 32 values
void DecodeIQ4_NL(const uint8_t* block, float* out) {
  DecodeLevels(block + 2, LoadHalf(block), out);
}

//   d F16 | scales_h 16 bits | scales_l 4 bytes | qs 128 bytes
//   x = (d (s - 32)) level(q), 256 values in 8 groups of 32, 0 <= s < 64
// Of the scale of group g, the low 4 bits are half g % 2 of scales_l[g / 2], and the high 2 bits
// are bits 2 g of scales_h.
void DecodeIQ4_XS(const uint8_t* block, float* out) {
  const float d = LoadHalf(block);
  const uint16_t scales_h = LoadU16(block + 2);
  const uint8_t* scales_l = block + 4;
  const uint8_t* qs = block + 8;
  for (int g = 0; g < 8; ++g) {
    const int s = (scales_l[g / 2] >> g % 2 * 4 & 15) | (scales_h >> 2 * g & 3) << 4;
    DecodeLevels(qs + g * 16, d * static_cast<float>(s - 32), out + g * 32);
  }
}

//   e 8 bits | qs 16 bytes                (OCP Microscaling Formats 1.0; half of its 2^(e - 127)
//   x = 2^(e - 128) level(q), 32 values    takes back that levels are doubled)
void DecodeMXFP4(const uint8_t* block, float* out) {
  DecodeLevels(block + 1, Bf16ToFloat(Mxfp4ScaleBits(block[0])), out, kFloatLevels);
}

}  // namespace lm
