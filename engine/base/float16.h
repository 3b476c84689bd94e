// Scalar conversions of the two 16-bit float formats. Kernels have vector forms of their own; these
// are the definition.
#ifndef LM_ENGINE_BASE_FLOAT16_H_
#define LM_ENGINE_BASE_FLOAT16_H_

#include <bit>
#include <cstdint>

namespace lm {

// IEEE binary16 -> binary32, exact (subnormals, infinities and NaN included).
inline float HalfToFloat(uint16_t half) {
  uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  uint32_t exponent = (half >> 10) & 0x1f;
  uint32_t mantissa = half & 0x3ffu;
  if (exponent == 0) {  // zero or subnormal: mantissa * 2^-24
    float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
  }
  uint32_t wide = exponent == 31 ? 0xffu : exponent + 112;
  return std::bit_cast<float>(sign | (wide << 23) | (mantissa << 13));
}

// binary32 -> IEEE binary16, round to nearest even; overflow becomes infinity.
inline uint16_t FloatToHalf(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  bits &= 0x7fffffffu;
  if (bits >= 0x7f800000u) {  // infinity or NaN (kept quiet)
    return sign | (bits > 0x7f800000u ? 0x7e00u : 0x7c00u);
  }
  if (bits < 0x38800000u) {  // below 2^-14: subnormal in half
    // Adding 0.5 puts the half's subnormal bits at the bottom of the float's mantissa, rounded.
    float shifted = std::bit_cast<float>(bits) + 0.5f;
    return sign | static_cast<uint16_t>(std::bit_cast<uint32_t>(shifted) - 0x3f000000u);
  }
  uint32_t rounded = bits + 0xfffu + ((bits >> 13) & 1);
  if (rounded >= 0x47800000u) return sign | 0x7c00u;
  return sign | static_cast<uint16_t>((rounded - 0x38000000u) >> 13);
}

// bfloat16 -> binary32, exact.
inline float Bf16ToFloat(uint16_t value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value) << 16);
}

}  // namespace lm

#endif  // LM_ENGINE_BASE_FLOAT16_H_
