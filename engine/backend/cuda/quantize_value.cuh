// How 32 activations become int8, as numeric_contract.h specifies it to the bit (MatMul).
#ifndef LM_ENGINE_BACKEND_CUDA_QUANTIZE_VALUE_H_
#define LM_ENGINE_BACKEND_CUDA_QUANTIZE_VALUE_H_

#include "engine/backend/cuda/host_device.cuh"

namespace lm::cuda {

// s and the factor that makes q of x, from the largest magnitude's bits (NaN above infinity).
struct ActivationScale {
  float s;
  float inverse;  // 0: all q are 0
};

LM_HOST_DEVICE ActivationScale ScaleActivations(uint32_t max_bits) {
  constexpr uint32_t kInfinity = 0x7f800000u;
  if (max_bits >= kInfinity) return {BitsToFloat(0x7fc00000u), 0.0f};
  float max = BitsToFloat(max_bits);
  float inverse = 127.0f / max;
  if (FloatToBits(inverse) == kInfinity) return {0.0f, 0.0f};
  return {max / 127.0f, inverse};
}

LM_HOST_DEVICE int QuantizeActivation(float x, ActivationScale scale) {
  return scale.inverse == 0.0f ? 0 : static_cast<int>(rintf(x * scale.inverse));
}

}  // namespace lm::cuda

#endif  // LM_ENGINE_BACKEND_CUDA_QUANTIZE_VALUE_H_
