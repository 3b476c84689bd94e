// Ops that treat every value by itself, or a few of a column: one block a row and 1024 columns.
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
  BeginKernel();
  ForEachValue(out, [&](int64_t row, int64_t i) {
    const float active = Activate(activation, gate.data[row * gate.stride + i]);
    out.data[row * out.stride + i] =
        up.data == nullptr ? active : active * GateFactor(activation, up.data[row * up.stride + i]);
  });
}

__global__ void AddKernel(Matrix x, Matrix y, float scale) {
  BeginKernel();
  ForEachValue(x, [&](int64_t row, int64_t i) {
    x.data[row * x.stride + i] += scale * y.data[row * y.stride + i];
  });
}

__global__ void ScaleAndCapKernel(Matrix x, float scale, float cap) {
  BeginKernel();
  ForEachValue(x, [&](int64_t row, int64_t i) {
    float& value = x.data[row * x.stride + i];
    value = CappedScore(value, scale, cap);
  });
}

__global__ void ClampKernel(Matrix x, float low, float high) {
  BeginKernel();
  ForEachValue(x, [&](int64_t row, int64_t i) {
    float& value = x.data[row * x.stride + i];
    value = value < low ? low : value > high ? high : value;
  });
}

__global__ void ScaleRowsKernel(Matrix x, Matrix factors, Activation activation) {
  BeginKernel();
  const int64_t n = x.cols / factors.cols;
  ForEachValue(x, [&](int64_t row, int64_t i) {
    x.data[row * x.stride + i] *= Activate(activation, factors.data[row * factors.stride + i / n]);
  });
}

// A thread makes one sum, in F64.
__global__ void DotKernel(Matrix x, Matrix y, Matrix out) {
  BeginKernel();
  const int64_t n = x.cols / out.cols;
  ForEachValue(out, [&](int64_t row, int64_t g) {
    double sum = 0;
    for (int64_t i = g * n; i < (g + 1) * n; ++i) {
      sum += static_cast<double>(x.data[row * x.stride + i]) * y.data[row * y.stride + i];
    }
    out.data[row * out.stride + g] = static_cast<float>(sum);
  });
}

__global__ void MixStreamsKernel(Matrix x, Matrix weights, int64_t streams, bool adds, Matrix out) {
  BeginKernel();
  const int64_t n = x.cols / streams;
  ForEachValue(out, [&](int64_t row, int64_t i) {
    const float* weight = weights.data + row * weights.stride + i / n * streams;
    const float* in = x.data + row * x.stride + i % n;
    float sum = 0;
    for (int64_t s = 0; s < streams; ++s) sum = fmaf(weight[s], in[s * n], sum);
    float& value = out.data[row * out.stride + i];
    value = adds ? value + sum : sum;
  });
}

__global__ void GatherRowsKernel(Matrix x, const int32_t* rows, Matrix out) {
  BeginKernel();
  ForEachValue(out, [&](int64_t row, int64_t i) {
    out.data[row * out.stride + i] = x.data[rows[row] * x.stride + i];
  });
}

// kFours: four values a thread, so that a block waits once.
template <bool kFours>
__global__ void CopyMatrixKernel(Matrix from, Matrix to) {
  BeginKernel();
  if constexpr (kFours) {
    static_assert(kColsPerBlock == 4 * kThreads);
    const int64_t i = int64_t{blockIdx.y} * kColsPerBlock + 4 * threadIdx.x, row = blockIdx.x;
    if (i >= to.cols) return;
    *reinterpret_cast<float4*>(to.data + row * to.stride + i) =
        *reinterpret_cast<const float4*>(from.data + row * from.stride + i);
  } else {
    ForEachValue(to, [&](int64_t row, int64_t i) {
      to.data[row * to.stride + i] = from.data[row * from.stride + i];
    });
  }
}

}  // namespace

cudaError_t CopyMatrix(const Queue& queue, Matrix from, Matrix to) {
  auto in_fours = [](const Matrix& matrix) {
    return reinterpret_cast<uintptr_t>(matrix.data) % sizeof(float4) == 0 &&
           matrix.stride % 4 == 0 && matrix.cols % 4 == 0;
  };
  return Launch(queue,
                in_fours(from) && in_fours(to) ? CopyMatrixKernel<true> : CopyMatrixKernel<false>,
                GridOver(to), kThreads, from, to);
}

cudaError_t GatedActivation(const Queue& queue, Activation activation, Matrix gate, Matrix up,
                            Matrix out) {
  return Launch(queue, GatedActivationKernel, GridOver(out), kThreads, activation, gate, up, out);
}

const void* SomeKernel() { return reinterpret_cast<const void*>(AddKernel); }

cudaError_t Add(const Queue& queue, Matrix x, Matrix y, float scale) {
  return Launch(queue, AddKernel, GridOver(x), kThreads, x, y, scale);
}

cudaError_t ScaleAndCap(const Queue& queue, Matrix x, float scale, float cap) {
  return Launch(queue, ScaleAndCapKernel, GridOver(x), kThreads, x, scale, cap);
}

cudaError_t ScaleGroups(const Queue& queue, Matrix x, Matrix factors, Activation activation) {
  return Launch(queue, ScaleRowsKernel, GridOver(x), kThreads, x, factors, activation);
}

cudaError_t Clamp(const Queue& queue, Matrix x, float low, float high) {
  return Launch(queue, ClampKernel, GridOver(x), kThreads, x, low, high);
}

cudaError_t Dot(const Queue& queue, Matrix x, Matrix y, Matrix out) {
  return Launch(queue, DotKernel, GridOver(out), kThreads, x, y, out);
}

cudaError_t MixStreams(const Queue& queue, Matrix x, Matrix weights, int64_t streams, bool adds,
                       Matrix out) {
  return Launch(queue, MixStreamsKernel, GridOver(out), kThreads, x, weights, streams, adds, out);
}

cudaError_t GatherRows(const Queue& queue, Matrix x, const int32_t* rows, Matrix out) {
  return Launch(queue, GatherRowsKernel, GridOver(out), kThreads, x, rows, out);
}

}  // namespace lm::cuda
