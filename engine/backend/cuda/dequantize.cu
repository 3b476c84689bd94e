// Rows of weights as floats: for Embed, and for the library's products.
#include "engine/backend/cuda/float_product.cuh"
#include "engine/backend/cuda/launch.cuh"
#include "engine/backend/cuda/weight_block.cuh"

namespace lm::cuda {
namespace {

constexpr int kThreads = 256;

__device__ void Store(float value, float* out) { *out = value; }
__device__ void Store(float value, uint16_t* out) { *out = StoreF16(value); }

// out[t] = scale * W[ids[t]], or of W[first_row + t] without ids. A warp takes 32 values: each of
// its threads decodes the block and keeps one.
template <DType kType, typename Out>
__global__ void DequantizeKernel(Weights w, const int32_t* ids, int64_t first_row, float scale,
                                 Out* out, int64_t stride) {
  int64_t row = ids != nullptr ? ids[blockIdx.x] : first_row + blockIdx.x;
  int64_t i = int64_t{blockIdx.y} * kThreads + threadIdx.x;
  if (i >= w.cols) return;
  constexpr WeightFormat kFormat = kWeightFormat<kType>;
  const uint16_t* data = static_cast<const uint16_t*>(w.data);
  const uint16_t* blocks = data + row * (w.cols / kFormat.values * (kFormat.bytes / 2));
  WeightBlock block = LoadWeightBlock<kType>(blocks, i / kWarp);
  Store(DequantizeWeight<kType>(block, i % kWarp) * scale, out + blockIdx.x * stride + i);
}

template <DType kType>
__global__ void EmbedFloatKernel(Weights w, const int32_t* ids, float scale, Matrix out) {
  int64_t i = int64_t{blockIdx.y} * kThreads + threadIdx.x;
  if (i >= w.cols) return;
  out.data[blockIdx.x * out.stride + i] =
      LoadFloatWeight<kType>(w.data, ids[blockIdx.x] * w.cols + i) * scale;
}

}  // namespace

cudaError_t Embed(const Queue& queue, const Weights& w, const int32_t* ids, float scale,
                  Matrix out) {
  dim3 grid = Grid(out.rows, DivideUp(w.cols, kThreads));
  if (IsFloat(w.dtype)) {
    return WithFloatType(w.dtype, [&](auto type) {
      return Launch(queue, EmbedFloatKernel<type()>, grid, kThreads, w, ids, scale, out);
    });
  }
  return WithQuantizedType(w.dtype, [&](auto type) {
    return Launch(queue, DequantizeKernel<type(), float>, grid, kThreads, w, ids, int64_t{0}, scale,
                  out.data, out.stride);
  });
}

cudaError_t DequantizeToF16(const Queue& queue, const Weights& w, int64_t first_row,
                            int64_t num_rows, uint16_t* out) {
  return WithQuantizedType(w.dtype, [&](auto type) {
    return Launch(queue, DequantizeKernel<type(), uint16_t>,
                  Grid(num_rows, DivideUp(w.cols, kThreads)), kThreads, w, nullptr, first_row, 1.0f,
                  out, w.cols);
  });
}

}  // namespace lm::cuda
