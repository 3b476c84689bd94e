// The greatest score of a chunk of attention, a thread block of kChunk threads having one each.
#ifndef LM_ENGINE_BACKEND_CUDA_CHUNK_MAX_H_
#define LM_ENGINE_BACKEND_CUDA_CHUNK_MAX_H_

#include "engine/backend/cuda/launch.cuh"

namespace lm::cuda {

// Positions a chunk: backend.h's kAttentionChunk.
constexpr int kChunk = 256;

// The greatest of the threads' values, in all of them. NaN counts as nothing.
__device__ inline float MaxOverChunk(float value, float* scratch) {
  for (int apart = kWarp / 2; apart > 0; apart /= 2) {
    value = fmaxf(value, __shfl_xor_sync(~0u, value, apart));
  }
  if (threadIdx.x % kWarp == 0) scratch[threadIdx.x / kWarp] = value;
  __syncthreads();
  for (int i = 0; i < kChunk / kWarp; ++i) value = fmaxf(value, scratch[i]);
  return value;
}

}  // namespace lm::cuda

#endif  // LM_ENGINE_BACKEND_CUDA_CHUNK_MAX_H_
