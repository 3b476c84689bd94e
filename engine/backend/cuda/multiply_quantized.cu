// out = W x^T + bias for quantised W, to the bit as numeric_contract.h specifies it.
//
// A warp makes one row of W times a tile of tokens. Its threads take 32 blocks of 32 weights at a
// time, one each, and leave each block's terms in shared memory; then one thread a token adds them
// in ascending order with fmaf. So the order of the sums is the specification's whatever T is, and
// the long part, decoding and integer products, is spread over the warp.
#include "engine/backend/cuda/dot_block.cuh"
#include "engine/backend/cuda/launch.cuh"

namespace lm::cuda {
namespace {

constexpr int kWarps = 4;  // rows of W a thread block

// x (T, k) -> blocks (T, k / 32). A warp takes a block; a thread, one of its values.
__global__ void QuantizeActivationsKernel(Matrix x, ActivationBlock* blocks) {
  const int lane = threadIdx.x % kWarp;
  const int64_t num_blocks = x.cols / kWarp;
  const int64_t b = int64_t{blockIdx.y} * kWarps + threadIdx.x / kWarp;
  if (b >= num_blocks) return;
  const float value = x.data[blockIdx.x * x.stride + b * kWarp + lane];
  const uint32_t max_bits = __reduce_max_sync(~0u, FloatToBits(value) & 0x7fffffffu);
  const ActivationScale scale = ScaleActivations(max_bits);
  const int q = QuantizeActivation(value, scale);
  ActivationBlock* out = blocks + blockIdx.x * num_blocks + b;
  reinterpret_cast<int8_t*>(out->q)[lane] = static_cast<int8_t>(q);
  const int sum_0 = __reduce_add_sync(~0u, lane < 16 ? q : 0);
  const int sum_1 = __reduce_add_sync(~0u, lane < 16 ? 0 : q);
  if (lane == 0) {
    out->s = scale.s;
    out->sum[0] = static_cast<int16_t>(sum_0);
    out->sum[1] = static_cast<int16_t>(sum_1);
  }
}

template <DType kType>
__global__ void MultiplyQuantizedKernel(Weights w, const ActivationBlock* x, const float* bias,
                                        Matrix out) {
  constexpr WeightFormat kFormat = kWeightFormat<kType>;
  constexpr int kTerms = kNumTerms<kType>;
  constexpr int kTokens = 16 / kTerms;
  // One more than needed, so that the tokens' threads read from different banks.
  __shared__ Term shared[kWarps][kTokens][kWarp * kTerms + 1];

  const int lane = threadIdx.x % kWarp;
  const int64_t n = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  if (n >= w.rows) return;
  auto& terms = shared[threadIdx.x / kWarp];
  const int64_t num_blocks = w.cols / 32;
  const uint16_t* row =
      static_cast<const uint16_t*>(w.data) + n * (w.cols / kFormat.values * (kFormat.bytes / 2));
  const int64_t first_token = int64_t{blockIdx.y} * kTokens;
  const int tokens = static_cast<int>(min(int64_t{kTokens}, out.rows - first_token));

  float acc = 0;  // of token `lane`
  for (int64_t begin = 0; begin < num_blocks; begin += kWarp) {
    const int64_t b = begin + lane;
    if (b < num_blocks) {
      const WeightBlock weights = LoadWeightBlock<kType>(row, b);
      for (int t = 0; t < tokens; ++t) {
        Term products[kTerms];
        DotBlock<kType>(weights, x[(first_token + t) * num_blocks + b], products);
        for (int i = 0; i < kTerms; ++i) terms[t][lane * kTerms + i] = products[i];
      }
    }
    __syncwarp();
    if (lane < tokens) {
      const int count = static_cast<int>(min(int64_t{kWarp}, num_blocks - begin)) * kTerms;
      for (int i = 0; i < count; ++i) {
        const Term term = terms[lane][i];
        acc = fmaf(term.x, term.y, acc);
      }
    }
    __syncwarp();
  }
  if (lane < tokens) {
    if (w.row_scales != nullptr) acc *= w.row_scales[n];
    if (bias != nullptr) acc += bias[n];
    out.data[(first_token + lane) * out.stride + n] = acc;
  }
}

}  // namespace

int64_t ActivationBytes(int64_t tokens, int64_t cols) {
  return tokens * (cols / 32) * static_cast<int64_t>(sizeof(ActivationBlock));
}

cudaError_t QuantizeActivations(const Queue& queue, Matrix x, ActivationBlock* blocks) {
  return Launch(queue, QuantizeActivationsKernel, Grid(x.rows, DivideUp(x.cols / kWarp, kWarps)),
                kWarps * kWarp, x, blocks);
}

cudaError_t MultiplyQuantized(const Queue& queue, const Weights& w, const ActivationBlock* x,
                              const float* bias, Matrix out) {
  return WithQuantizedType(w.dtype, [&](auto type) {
    constexpr int kTokens = 16 / kNumTerms<type()>;
    return Launch(queue, MultiplyQuantizedKernel<type()>,
                  Grid(DivideUp(w.rows, kWarps), DivideUp(out.rows, kTokens)), kWarps * kWarp, w, x,
                  bias, out);
  });
}

}  // namespace lm::cuda
