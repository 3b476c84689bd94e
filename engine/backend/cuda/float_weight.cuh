// Value i of a matrix of plain floats, and the sum that products with it are.
#ifndef LM_ENGINE_BACKEND_CUDA_FLOAT_WEIGHT_H_
#define LM_ENGINE_BACKEND_CUDA_FLOAT_WEIGHT_H_

#include "engine/backend/cuda/host_device.cuh"
#include "engine/tensor/dtype.h"

namespace lm::cuda {

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

// Values of K that are summed at a time (backend.h's kFloatChunk).
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

}  // namespace lm::cuda

#endif  // LM_ENGINE_BACKEND_CUDA_FLOAT_WEIGHT_H_
