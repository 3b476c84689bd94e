// The arithmetic of products in floats: values of plain matrices and their sums, and the factors
// of the library's 16-bit products.
#ifndef LM_ENGINE_BACKEND_CUDA_FLOAT_PRODUCT_H_
#define LM_ENGINE_BACKEND_CUDA_FLOAT_PRODUCT_H_

#include "engine/backend/cuda/host_device.cuh"
#include "engine/tensor/dtype.h"

namespace lm::cuda {

// Value i of a matrix of plain floats.
template <DType kType>
LM_HOST_DEVICE float LoadFloatWeight(const void* data, int64_t i) {
  if constexpr (kType == DType::kF32) {
    return static_cast<const float*>(data)[i];
  } else if constexpr (kType == DType::kF16) {
    return LoadF16(static_cast<const uint16_t*>(data)[i]);
  } else {
    static_assert(kType == DType::kBF16);
    return LoadBf16(static_cast<const uint16_t*>(data)[i]);
  }
}

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
