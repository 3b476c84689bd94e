// out = W x^T + bias for W of F32: acc = fmaf(w[n, i], x[t, i], acc), i ascending, as
// numeric_contract.h says.
//
// Large ones: a thread block makes 32 rows of W times 32 tokens, 64 columns at a time through
// shared memory. A thread keeps the sums of one row of W and four tokens, each in its own register:
// nothing is added across threads, so the order is the same for every T.
//
// Small ones, as that of a router, of which such blocks would keep few multiprocessors busy, and
// for long: a block makes 4 rows times 8 tokens, and each of its warps other chunks of K, which are
// added in order.
#include "engine/backend/cuda/float_product.cuh"
#include "engine/backend/cuda/launch.cuh"
#include "engine/backend/cuda/warp_matrix.cuh"

namespace lm::cuda {
namespace {

constexpr int kRows = 32;
constexpr int kTokens = 32;
constexpr int kCols = 64;
constexpr int kThreadRows = 8;  // a thread has every eighth token
constexpr int kThreads = kRows * kThreadRows;

constexpr int kSmallRows = 4, kSmallTokens = 8;
static_assert(kSmallRows * kSmallTokens == kWarp);
constexpr int kSmallWarps = 8;
// Blocks of large products that keep a GPU busy.
constexpr int64_t kBusyBlocks = 132;

// The sum of a row and a token, to where it goes.
__device__ __forceinline__ void StoreFloat(const PackedWeights& w, const float* bias, bool adds,
                                           const Matrix& out, int64_t row, int64_t token,
                                           float value) {
  if (w.row_scales != nullptr) value *= w.row_scales[row];
  if (bias != nullptr) value += bias[row];
  float& to = out.data[token * out.stride + row];
  to = adds ? to + value : value;
}

// With groups of slots each is blocks_of_group blocks.
__global__ void MultiplyFloatKernel(PackedWeights w, Matrix x, const float* bias, Matrix out,
                                    bool adds, ExpertProducts experts, int blocks_of_group) {
  __shared__ float w_tile[kCols][kRows + 1];  // transposed; + 1 against bank conflicts
  __shared__ float x_tile[kTokens][kCols];
  BeginKernel();
  const int64_t first_row = int64_t{blockIdx.x} * kRows;
  int64_t first_token = int64_t{blockIdx.y} * kTokens;
  if (experts.groups != nullptr) {
    const SlotGroup slots = experts.groups[blockIdx.y / blocks_of_group];
    first_token = int64_t{blockIdx.y % blocks_of_group} * kTokens;
    if (first_token >= slots.count) return;
    const ExpertMatrix matrix = experts.matrices[slots.expert];
    w.data = matrix.data;
    w.row_scales = matrix.row_scales;
    bias = matrix.bias;
    x.data += slots.first * x.stride;
    x.rows = slots.count;
    out.data += slots.first * out.stride;
  }
  const auto* weights = reinterpret_cast<const float*>(w.data);
  const int rows = static_cast<int>(min(int64_t{kRows}, w.rows - first_row));
  const int tokens = static_cast<int>(min(int64_t{kTokens}, x.rows - first_token));
  const int my_row = threadIdx.x % kRows;
  const int my_token = threadIdx.x / kRows;

  ChunkedSum sums[kTokens / kThreadRows] = {};
  for (int64_t begin = 0; begin < w.cols; begin += kCols) {
    const int cols = static_cast<int>(min(int64_t{kCols}, w.cols - begin));
    for (int i = threadIdx.x; i < kRows * kCols; i += kThreads) {
      const int r = i / kCols;
      const int c = i % kCols;
      if (r < rows && c < cols) {
        w_tile[c][r] = weights[(first_row + r) * w.cols + begin + c];
      }
      if (r < tokens && c < cols) x_tile[r][c] = x.data[(first_token + r) * x.stride + begin + c];
    }
    __syncthreads();
    for (int c = 0; c < cols; ++c) {
      const float weight = w_tile[c][my_row];
      for (int j = 0; j < kTokens / kThreadRows; ++j) {
        float& acc = sums[j].chunk;
        acc = fmaf(weight, x_tile[my_token + j * kThreadRows][c], acc);
      }
    }
    __syncthreads();
    const int64_t end = begin + kCols;
    if (end % kSumChunk == 0 || end >= w.cols) {
      for (ChunkedSum& sum : sums) EndChunk(end <= kSumChunk, &sum);
    }
  }
  if (my_row >= rows) return;
  for (int j = 0; j < kTokens / kThreadRows; ++j) {
    const int t = my_token + j * kThreadRows;
    if (t >= tokens) break;
    StoreFloat(w, bias, adds, out, first_row + my_row, first_token + t, sums[j].total);
  }
}
static_assert(kRows == kTokens, "the loop that fills the tiles counts both at once");
static_assert(kSumChunk % kCols == 0);

// REQUIRES: four columns at a time are aligned, and there are no others.
__global__ void MultiplySmallFloatKernel(PackedWeights w, Matrix x, const float* bias, bool adds,
                                         Matrix out) {
  __shared__ float chunks[kSmallWarps][kWarp];
  LetNextKernelBegin();
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int64_t row = int64_t{blockIdx.x} * kSmallRows + lane / kSmallTokens;
  const int64_t token = int64_t{blockIdx.y} * kSmallTokens + lane % kSmallTokens;
  // Of rows and tokens that there are not the last ones are made once more.
  const float* weights = reinterpret_cast<const float*>(w.data) + min(row, w.rows - 1) * w.cols;
  const float* in = x.data + min(token, x.rows - 1) * x.stride;
  const int64_t own_line = warp * kSumChunk + lane % kSmallTokens * (kSumChunk / kSmallTokens);
  if (own_line < w.cols) PrefetchToL2(weights + own_line);
  WaitForKernelBefore();
  float total = 0;
  for (int64_t first = 0; first < w.cols; first += kSmallWarps * kSumChunk) {
    const int64_t begin = first + warp * kSumChunk, end = min(begin + kSumChunk, w.cols);
    float chunk = 0;
#pragma unroll 8
    for (int64_t i = begin; i < end; i += 4) {
      const float4 a = *reinterpret_cast<const float4*>(weights + i);
      const float4 b = *reinterpret_cast<const float4*>(in + i);
      chunk = fmaf(a.x, b.x, chunk);
      chunk = fmaf(a.y, b.y, chunk);
      chunk = fmaf(a.z, b.z, chunk);
      chunk = fmaf(a.w, b.w, chunk);
    }
    chunks[warp][lane] = chunk;
    __syncthreads();
    if (warp == 0) {
      for (int c = 0; c < kSmallWarps && first + c * kSumChunk < w.cols; ++c) {
        total = first == 0 && c == 0 ? chunks[c][lane] : total + chunks[c][lane];
      }
    }
    __syncthreads();  // read, before the next ones come
  }
  if (warp > 0 || row >= w.rows || token >= x.rows) return;
  StoreFloat(w, bias, adds, out, row, token, total);
}

bool IsSmall(const PackedWeights& w, const Matrix& x) {
  if (reinterpret_cast<uintptr_t>(x.data) % 16 != 0 || x.stride % 4 != 0 || w.cols % 4 != 0) {
    return false;
  }
  return x.rows <= kSmallTokens ||
         DivideUp(w.rows, kRows) * DivideUp(x.rows, kTokens) < kBusyBlocks;
}

}  // namespace

cudaError_t MultiplyFloat(const Queue& queue, const PackedWeights& w, Matrix x, const float* bias,
                          bool adds, Matrix out, const ExpertProducts* experts) {
  if (experts == nullptr && IsSmall(w, x)) {
    return Launch(queue, MultiplySmallFloatKernel,
                  Grid(DivideUp(w.rows, kSmallRows), DivideUp(x.rows, kSmallTokens)),
                  kSmallWarps * kWarp, w, x, bias, adds, out);
  }
  const ExpertProducts all = experts == nullptr ? ExpertProducts{} : *experts;
  const int64_t of_group = experts == nullptr ? 1 : DivideUp(all.group_slots, kTokens);
  const int64_t blocks =
      experts == nullptr ? DivideUp(out.rows, kTokens) : all.num_groups * of_group;
  return Launch(queue, MultiplyFloatKernel, Grid(DivideUp(w.rows, kRows), blocks), kThreads, w, x,
                bias, out, adds, all, static_cast<int>(of_group));
}

}  // namespace lm::cuda
