// Normalize (backend.h): one block a group of values of a row.
//
// Sums are in F64: thread i adds the values i, i + 256, ... in order, then the threads' sums are
// added as a tree, neighbours 128, 64, ..., 1 apart.
#include "engine/backend/cuda/launch.cuh"

namespace lm::cuda {
namespace {

constexpr int kThreads = 256;

// The sum of the threads' values, in all of them. `sums` can be used again at once.
__device__ double SumOverBlock(double value, double* sums) {
  sums[threadIdx.x] = value;
  __syncthreads();
  for (int apart = kThreads / 2; apart > 0; apart /= 2) {
    if (threadIdx.x < apart) sums[threadIdx.x] += sums[threadIdx.x + apart];
    __syncthreads();
  }
  const double sum = sums[0];
  __syncthreads();
  return sum;
}

__global__ void NormalizeKernel(Matrix x, NormRow norm, Matrix out) {
  __shared__ double sums[kThreads];
  const int64_t n = norm.group, at = blockIdx.y * n;
  const float* in = x.data + blockIdx.x * x.stride + at;
  float* result = out.data + blockIdx.x * out.stride + at;
  const float* weight = norm.weight + at % norm.weights;
  const float* bias = norm.bias == nullptr ? nullptr : norm.bias + at % norm.weights;
  double mean = 0;
  if (norm.centred) {
    double sum = 0;
    for (int64_t i = threadIdx.x; i < n; i += kThreads) sum += in[i];
    mean = SumOverBlock(sum, sums) / static_cast<double>(n);
  }
  float scale = 1;
  if (norm.scaled) {
    double squares = 0;
    for (int64_t i = threadIdx.x; i < n; i += kThreads) squares += (in[i] - mean) * (in[i] - mean);
    squares = SumOverBlock(squares, sums);
    scale = 1.0f / sqrtf(static_cast<float>(squares / static_cast<double>(n)) + norm.eps);
  }
  // Each thread writes only what it alone reads: out may be x.
  for (int64_t i = threadIdx.x; i < n; i += kThreads) {
    const float value = (in[i] - static_cast<float>(mean)) * scale * weight[i];
    result[i] = bias == nullptr ? value : value + bias[i];
  }
}

}  // namespace

cudaError_t Normalize(const Queue& queue, Matrix x, const NormRow& norm, Matrix out) {
  return Launch(queue, NormalizeKernel, Grid(x.rows, x.cols / norm.group), kThreads, x, norm, out);
}

}  // namespace lm::cuda
