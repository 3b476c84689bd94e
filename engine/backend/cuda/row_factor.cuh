// Activations for the library's 16-bit products. F16 ends at 65504, and some models' activations do
// not: each row is first multiplied by a power of two, which costs no bits.
#ifndef LM_ENGINE_BACKEND_CUDA_ROW_FACTOR_H_
#define LM_ENGINE_BACKEND_CUDA_ROW_FACTOR_H_

#include "engine/backend/cuda/host_device.cuh"

namespace lm::cuda {

// The power of two in [2^-126, 2^126] by which a row of the given largest magnitude (its bits) is
// multiplied, so that magnitudes are below 4; 1 for a row of zeros, infinities or NaN.
LM_HOST_DEVICE float RowFactor(uint32_t max_bits) {
  int exponent = static_cast<int>(max_bits >> 23);
  if (exponent == 0 || exponent == 255) return 1.0f;
  int inverse = 254 - exponent;  // biased
  return BitsToFloat(static_cast<uint32_t>(inverse < 1 ? 1 : inverse) << 23);
}

}  // namespace lm::cuda

#endif  // LM_ENGINE_BACKEND_CUDA_ROW_FACTOR_H_
