// out[t, i] = x[t, i] / sqrt(mean_i(x[t, i]^2) + eps) * weight[i] over groups of n values of a row.
// One block a group.
//
// The sum of squares is in F64: thread i adds the values i, i + 256, ... in order, then the
// threads' sums are added as a tree, neighbours 128, 64, ..., 1 apart.
#include "engine/backend/cuda/launch.cuh"

namespace lm::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void RmsNormKernel(Matrix x, const float* weight, int64_t n, float eps, Matrix out) {
  const float* in = x.data + blockIdx.x * x.stride + blockIdx.y * n;
  float* result = out.data + blockIdx.x * out.stride + blockIdx.y * n;
  double sum = 0;
  for (int64_t i = threadIdx.x; i < n; i += kThreads) sum += double{in[i]} * in[i];
  __shared__ double sums[kThreads];
  sums[threadIdx.x] = sum;
  __syncthreads();
  for (int apart = kThreads / 2; apart > 0; apart /= 2) {
    if (threadIdx.x < apart) sums[threadIdx.x] += sums[threadIdx.x + apart];
    __syncthreads();
  }
  float scale = 1.0f / sqrtf(static_cast<float>(sums[0] / static_cast<double>(n)) + eps);
  // Each thread writes only what it alone reads: out may be x.
  for (int64_t i = threadIdx.x; i < n; i += kThreads) result[i] = in[i] * scale * weight[i];
}

}  // namespace

cudaError_t RmsNorm(const Queue& queue, Matrix x, const float* weight, int64_t n, float eps,
                    Matrix out) {
  return Launch(queue, RmsNormKernel, Grid(x.rows, x.cols / n), kThreads, x, weight, n, eps, out);
}

}  // namespace lm::cuda
