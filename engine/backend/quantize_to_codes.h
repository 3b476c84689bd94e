// The definition of how values become codes with one scale: 32 activations in int8
// (numeric_contract.h), a token's key or value of one head in int8 or int16 (KvLayer). Kernels have
// vector forms of their own and must give the same bits.
#ifndef LM_ENGINE_BACKEND_QUANTIZE_TO_CODES_H_
#define LM_ENGINE_BACKEND_QUANTIZE_TO_CODES_H_

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace lm {

// Quantises x[0, n) to q of magnitudes up to `most` and returns s, so that x ~ s * q: q =
// round-half-even(x * (most / max|x|)), s = max|x| / most, all in F32. All q = 0 and s = 0 where
// most / max|x| overflows; all q = 0 and s = NaN where a value is infinite or NaN.
template <typename Code>
float QuantizeToCodes(const float* x, int64_t n, int most, Code* q) {
  constexpr uint32_t kInfinityBits = 0x7f800000u;
  // Magnitudes order as their bits do, with NaN above infinity.
  uint32_t max_bits = 0;
  for (int64_t i = 0; i < n; ++i) {
    uint32_t bits = std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu;
    if (bits > max_bits) max_bits = bits;
    q[i] = 0;
  }
  if (max_bits >= kInfinityBits) return std::numeric_limits<float>::quiet_NaN();
  const float max = std::bit_cast<float>(max_bits), limit = static_cast<float>(most);
  const float inverse = limit / max;
  if (std::isinf(inverse)) return 0.0f;
  for (int64_t i = 0; i < n; ++i) q[i] = static_cast<Code>(std::nearbyint(x[i] * inverse));
  return max / limit;
}

inline float QuantizeToInt8(const float* x, int64_t n, int8_t* q) {
  return QuantizeToCodes(x, n, 127, q);
}

}  // namespace lm

#endif  // LM_ENGINE_BACKEND_QUANTIZE_TO_CODES_H_
