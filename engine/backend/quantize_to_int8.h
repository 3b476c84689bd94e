// The definition of how values become int8: 32 activations (backend.h, MatMul), a token's key or
// value of one head (KvLayer). Kernels have vector forms of their own and must give the same bits.
#ifndef LM_ENGINE_BACKEND_QUANTIZE_TO_INT8_H_
#define LM_ENGINE_BACKEND_QUANTIZE_TO_INT8_H_

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace lm {

// Quantises x[0, n) to q and returns s, so that x ~ s * q.
inline float QuantizeToInt8(const float* x, int64_t n, int8_t* q) {
  constexpr uint32_t kInfinityBits = 0x7f800000u;
  // Magnitudes order as their bits do, with NaN above infinity.
  uint32_t max_bits = 0;
  for (int64_t i = 0; i < n; ++i) {
    uint32_t bits = std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu;
    if (bits > max_bits) max_bits = bits;
    q[i] = 0;
  }
  if (max_bits >= kInfinityBits) return std::numeric_limits<float>::quiet_NaN();
  float max = std::bit_cast<float>(max_bits);
  float inverse = 127.0f / max;
  if (std::isinf(inverse)) return 0.0f;
  for (int64_t i = 0; i < n; ++i) q[i] = static_cast<int8_t>(std::nearbyint(x[i] * inverse));
  return max / 127.0f;
}

}  // namespace lm

#endif  // LM_ENGINE_BACKEND_QUANTIZE_TO_INT8_H_
