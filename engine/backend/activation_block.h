// The definition of how 32 activations become int8 (backend.h, MatMul). Kernels have vector forms
// of their own and must give the same bits.
#ifndef LM_ENGINE_BACKEND_ACTIVATION_BLOCK_H_
#define LM_ENGINE_BACKEND_ACTIVATION_BLOCK_H_

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace lm {

// Quantises x[0, 32) to q and returns s, so that x ~ s * q.
inline float QuantizeActivationBlock(const float* x, int8_t* q) {
  constexpr uint32_t kInfinityBits = 0x7f800000u;
  // Magnitudes order as their bits do, with NaN above infinity.
  uint32_t max_bits = 0;
  for (int i = 0; i < 32; ++i) {
    uint32_t bits = std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu;
    if (bits > max_bits) max_bits = bits;
    q[i] = 0;
  }
  if (max_bits >= kInfinityBits) return std::numeric_limits<float>::quiet_NaN();
  float max = std::bit_cast<float>(max_bits);
  float inverse = 127.0f / max;
  if (std::isinf(inverse)) return 0.0f;
  for (int i = 0; i < 32; ++i) q[i] = static_cast<int8_t>(std::nearbyint(x[i] * inverse));
  return max / 127.0f;
}

}  // namespace lm

#endif  // LM_ENGINE_BACKEND_ACTIVATION_BLOCK_H_
