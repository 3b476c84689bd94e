// out = W x^T + bias for W of F32: acc = fmaf(w[n, i], x[t, i], acc), i ascending, as
// numeric_contract.h says.
//
// A thread block makes 32 rows of W times 32 tokens, 64 columns at a time through shared memory. A
// thread keeps the sums of one row of W and four tokens, each in its own register: nothing is added
// across threads, so the order is the same for every T.
#include "engine/backend/cuda/float_product.cuh"
#include "engine/backend/cuda/launch.cuh"

namespace lm::cuda {
namespace {

constexpr int kRows = 32;
constexpr int kTokens = 32;
constexpr int kCols = 64;
constexpr int kThreadRows = 8;  // a thread has every eighth token
constexpr int kThreads = kRows * kThreadRows;

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
    float value = sums[j].total;
    if (w.row_scales != nullptr) value *= w.row_scales[first_row + my_row];
    if (bias != nullptr) value += bias[first_row + my_row];
    float& to = out.data[(first_token + t) * out.stride + first_row + my_row];
    to = adds ? to + value : value;
  }
}
static_assert(kRows == kTokens, "the loop that fills the tiles counts both at once");
static_assert(kSumChunk % kCols == 0);

}  // namespace

cudaError_t MultiplyFloat(const Queue& queue, const PackedWeights& w, Matrix x, const float* bias,
                          bool adds, Matrix out, const ExpertProducts* experts) {
  const ExpertProducts all = experts == nullptr ? ExpertProducts{} : *experts;
  const int64_t of_group = experts == nullptr ? 1 : DivideUp(all.group_slots, kTokens);
  const int64_t blocks =
      experts == nullptr ? DivideUp(out.rows, kTokens) : all.num_groups * of_group;
  return Launch(queue, MultiplyFloatKernel, Grid(DivideUp(w.rows, kRows), blocks), kThreads, w, x,
                bias, out, adds, all, static_cast<int>(of_group));
}

}  // namespace lm::cuda
