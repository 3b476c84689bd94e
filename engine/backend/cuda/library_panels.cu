// What surrounds the library's products: activations to 16 bits, sums back to rows of F32.
#include "engine/backend/cuda/float_product.cuh"
#include "engine/backend/cuda/launch.cuh"

namespace lm::cuda {
namespace {

constexpr int kThreads = 256;

// One block a row: its largest magnitude, then its values times the factor.
template <bool kBf16>
__global__ void PackActivationsKernel(Matrix x, uint16_t* out, float* factors) {
  uint16_t* result = out + blockIdx.x * x.cols;
  if (blockIdx.x >= x.rows) {
    for (int64_t i = threadIdx.x; i < x.cols; i += kThreads) result[i] = 0;
    return;
  }
  const float* in = x.data + blockIdx.x * x.stride;
  __shared__ uint32_t largest;
  if (threadIdx.x == 0) largest = 0;
  __syncthreads();
  uint32_t mine = 0;  // magnitudes order as their bits do
  for (int64_t i = threadIdx.x; i < x.cols; i += kThreads) {
    mine = max(mine, FloatToBits(in[i]) & 0x7fffffffu);
  }
  atomicMax(&largest, mine);
  __syncthreads();
  const float factor = RowFactor(largest);
  if (threadIdx.x == 0) factors[blockIdx.x] = factor;
  for (int64_t i = threadIdx.x; i < x.cols; i += kThreads) {
    result[i] = kBf16 ? StoreBf16(in[i] * factor) : StoreF16(in[i] * factor);
  }
}

__global__ void StoreProductKernel(const float* product, int64_t stride, const float* factors,
                                   const float* row_scales, const float* bias, Matrix out) {
  const int64_t i = int64_t{blockIdx.y} * kThreads + threadIdx.x;
  if (i >= out.cols) return;
  float value = product[blockIdx.x * stride + i] / factors[blockIdx.x];
  if (row_scales != nullptr) value *= row_scales[i];
  if (bias != nullptr) value += bias[i];
  out.data[blockIdx.x * out.stride + i] = value;
}

}  // namespace

cudaError_t PackActivations(const Queue& queue, Matrix x, bool bf16, int64_t padded_rows,
                            uint16_t* out, float* factors) {
  auto kernel = bf16 ? PackActivationsKernel<true> : PackActivationsKernel<false>;
  return Launch(queue, kernel, Grid(padded_rows), kThreads, x, out, factors);
}

cudaError_t StoreProduct(const Queue& queue, const float* product, int64_t stride,
                         const float* factors, const float* row_scales, const float* bias,
                         Matrix out) {
  return Launch(queue, StoreProductKernel, Grid(out.rows, DivideUp(out.cols, kThreads)), kThreads,
                product, stride, factors, row_scales, bias, out);
}

}  // namespace lm::cuda
