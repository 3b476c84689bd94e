// What a norm makes of a group of a row's values (backend.h, Norm), by a thread block of
// kNormThreads threads.
//
// Sums are in F64: thread i adds the values i, i + 256, ... in order, then the threads' sums are
// added as a tree, within the warps and then of these.
#ifndef LM_ENGINE_BACKEND_CUDA_ROW_NORM_H_
#define LM_ENGINE_BACKEND_CUDA_ROW_NORM_H_

#include "engine/backend/cuda/launch.cuh"

namespace lm::cuda {

constexpr int kNormThreads = 256;
constexpr int kNormWarps = kNormThreads / kWarp;

// The sum of the threads' values, in all of them. `sums` can be used again at once.
__device__ inline double SumOverBlock(double value, double* sums) {
  for (int apart = kWarp / 2; apart > 0; apart /= 2) {
    value += __shfl_xor_sync(~0u, value, apart);
  }
  if (threadIdx.x % kWarp == 0) sums[threadIdx.x / kWarp] = value;
  __syncthreads();
  double sum = 0;
  for (int i = 0; i < kNormWarps; ++i) sum += sums[i];
  __syncthreads();
  return sum;
}

struct RowNorm {
  float mean = 0;
  float scale = 1;

  __device__ float Of(float x, float weight) const { return (x - mean) * scale * weight; }
  // Of value i of the group, which is the row's column at + i.
  __device__ float Apply(const NormRow& norm, float x, int64_t column) const {
    const auto i = static_cast<uint32_t>(column) % static_cast<uint32_t>(norm.weights);
    const float value = Of(x, norm.weight[i]);
    return norm.bias == nullptr ? value : value + norm.bias[i];
  }
};

// The sum of what `term` makes of the group's values, a thread's in order; they are asked for some
// at a time.
template <typename Term>
__device__ __forceinline__ double SumOfTerms(const float* group, int n, Term term) {
  constexpr int kAtATime = 8;
  double sum = 0;
  for (int first = threadIdx.x; first < n; first += kAtATime * kNormThreads) {
    float values[kAtATime];
#pragma unroll
    for (int j = 0; j < kAtATime; ++j) {
      const int i = first + j * kNormThreads;
      values[j] = i < n ? group[i] : 0.0f;
    }
#pragma unroll
    for (int j = 0; j < kAtATime; ++j) {
      if (first + j * kNormThreads < n) sum += term(values[j]);
    }
  }
  return sum;
}

// `sums` has kNormWarps values.
__device__ inline RowNorm FindNorm(const NormRow& norm, const float* group, double* sums) {
  RowNorm found;
  const int n = static_cast<int>(norm.group);
  double mean = 0;
  if (norm.centred) {
    const double sum = SumOfTerms(group, n, [](float x) { return static_cast<double>(x); });
    mean = SumOverBlock(sum, sums) / static_cast<double>(n);
    found.mean = static_cast<float>(mean);
  }
  if (norm.scaled) {
    double squares = SumOfTerms(group, n, [mean](float x) { return (x - mean) * (x - mean); });
    squares = SumOverBlock(squares, sums);
    found.scale = 1.0f / sqrtf(static_cast<float>(squares / static_cast<double>(n)) + norm.eps);
  }
  return found;
}

}  // namespace lm::cuda

#endif  // LM_ENGINE_BACKEND_CUDA_ROW_NORM_H_
