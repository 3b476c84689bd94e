// The arithmetic of products in floats: the sums of F32 ones, and the factors of 16-bit ones.
#ifndef LM_ENGINE_BACKEND_CUDA_FLOAT_PRODUCT_H_
#define LM_ENGINE_BACKEND_CUDA_FLOAT_PRODUCT_H_

#include "engine/backend/cuda/host_device.cuh"

namespace lm::cuda {

// Values of K that are summed at a time (numeric_contract.h's kFloatChunk).
inline constexpr int kSumChunk = 256;

// A sum of products in chunks, which are added in order.
struct ChunkedSum {
  float chunk;
  float total;
};

// To be called after the last value of a chunk.
LM_HOST_DEVICE void EndChunk(bool first, ChunkedSum* sum) {
  sum->total = first ? sum->chunk : sum->total + sum->chunk;
  sum->chunk = 0;
}

// The power of two in [2^-126, 2^126] by which a row of activations of the given largest magnitude
// (its bits) is multiplied before it becomes 16-bit, which costs no bits: F16 ends at 65504, and
// some models' activations do not. Magnitudes are then below 4. 1 for a row of zeros, infinities or
// NaN.
LM_HOST_DEVICE float RowFactor(uint32_t max_bits) {
  int exponent = static_cast<int>(max_bits >> 23);
  if (exponent == 0 || exponent == 255) return 1.0f;
  int inverse = 254 - exponent;  // biased
  return BitsToFloat(static_cast<uint32_t>(inverse < 1 ? 1 : inverse) << 23);
}

}  // namespace lm::cuda

#endif  // LM_ENGINE_BACKEND_CUDA_FLOAT_PRODUCT_H_
