// Normalize (backend.h): one block a group of values of a row.
#include "engine/backend/cuda/row_norm.cuh"

namespace lm::cuda {
namespace {

__global__ void NormalizeKernel(Matrix x, NormRow norm, Matrix out) {
  __shared__ double sums[kNormWarps];
  BeginKernel();
  const int64_t at = blockIdx.y * norm.group;
  const float* in = x.data + blockIdx.x * x.stride + at;
  float* result = out.data + blockIdx.x * out.stride + at;
  const RowNorm found = FindNorm(norm, in, sums);
  // Each thread writes only what it alone reads: out may be x.
  for (int64_t i = threadIdx.x; i < norm.group; i += kNormThreads) {
    result[i] = found.Apply(norm, in[i], at + i);
  }
}

}  // namespace

cudaError_t Normalize(const Queue& queue, Matrix x, const NormRow& norm, Matrix out) {
  return Launch(queue, NormalizeKernel, Grid(x.rows, x.cols / norm.group), kNormThreads, x, norm,
                out);
}

}  // namespace lm::cuda
