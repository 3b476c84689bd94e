// Ops that treat every value by itself: GatedActivation, Add, GatherRows. One block a row and 1024
// columns.
#include "engine/backend/cuda/launch.cuh"
#include "engine/backend/cuda/op_arithmetic.cuh"

namespace lm::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kColsPerBlock = 1024;

// Calls function(row, column) for the values of this block.
template <typename Function>
__device__ void ForEachValue(const Matrix& matrix, Function function) {
  int64_t begin = int64_t{blockIdx.y} * kColsPerBlock;
  int64_t end = min(begin + kColsPerBlock, matrix.cols);
  for (int64_t i = begin + threadIdx.x; i < end; i += kThreads) function(int64_t{blockIdx.x}, i);
}

dim3 GridOver(const Matrix& matrix) {
  return Grid(matrix.rows, DivideUp(matrix.cols, kColsPerBlock));
}

__global__ void GatedActivationKernel(Activation activation, Matrix gate, Matrix up, Matrix out) {
  ForEachValue(out, [&](int64_t row, int64_t i) {
    out.data[row * out.stride + i] =
        Activate(activation, gate.data[row * gate.stride + i]) * up.data[row * up.stride + i];
  });
}

__global__ void AddKernel(Matrix x, Matrix y) {
  ForEachValue(
      x, [&](int64_t row, int64_t i) { x.data[row * x.stride + i] += y.data[row * y.stride + i]; });
}

__global__ void GatherRowsKernel(Matrix x, const int32_t* rows, Matrix out) {
  ForEachValue(out, [&](int64_t row, int64_t i) {
    out.data[row * out.stride + i] = x.data[rows[row] * x.stride + i];
  });
}

}  // namespace

cudaError_t GatedActivation(const Queue& queue, Activation activation, Matrix gate, Matrix up,
                            Matrix out) {
  return Launch(queue, GatedActivationKernel, GridOver(out), kThreads, activation, gate, up, out);
}

cudaError_t Add(const Queue& queue, Matrix x, Matrix y) {
  return Launch(queue, AddKernel, GridOver(x), kThreads, x, y);
}

cudaError_t GatherRows(const Queue& queue, Matrix x, const int32_t* rows, Matrix out) {
  return Launch(queue, GatherRowsKernel, GridOver(out), kThreads, x, rows, out);
}

}  // namespace lm::cuda
