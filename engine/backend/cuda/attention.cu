// Causal attention of one query head of one token a thread block, chunk by chunk (backend.h).
//
// In a chunk of 256 positions thread j makes the score of position j, a dot product in ascending
// order; then a thread a value of the head walks the positions in ascending order, and merges the
// chunk with the ones before it. Those are the reference's orders, for every shape.
#include <cmath>

#include "engine/backend/cuda/kv_value.cuh"
#include "engine/backend/cuda/launch.cuh"
#include "engine/backend/cuda/online_softmax.cuh"

namespace lm::cuda {
namespace {

constexpr int kThreads = 256;  // and positions a chunk: backend.h's kAttentionChunk

// The greatest of the threads' values, in all of them. NaN counts as nothing.
__device__ float MaxOverBlock(float value, float* scratch) {
  for (int apart = kWarp / 2; apart > 0; apart /= 2) {
    value = fmaxf(value, __shfl_xor_sync(~0u, value, apart));
  }
  if (threadIdx.x % kWarp == 0) scratch[threadIdx.x / kWarp] = value;
  __syncthreads();
  for (int i = 0; i < kThreads / kWarp; ++i) value = fmaxf(value, scratch[i]);
  return value;
}

template <DType kType>
__global__ void AttentionKernel(Matrix q, const AttentionRow* rows, const int32_t* blocks,
                                KvCacheLayer layer, float scale, Matrix out) {
  __shared__ float weights[kThreads];
  __shared__ float scaled[kThreads];   // weights times the values' scales
  __shared__ int64_t heads[kThreads];  // where the positions' blocks have this head
  __shared__ float scratch[kThreads / kWarp];

  const AttentionRow row = rows[blockIdx.x];
  const int64_t dim = layer.head_dim;
  const int64_t head = blockIdx.y;
  const int64_t kv_head = head / (q.cols / dim / layer.kv_heads);
  const float* query = q.data + row.row * q.stride + head * dim;

  // The values of a head are taken 256 at a time; nearly all heads have no more. The first round
  // leaves nothing behind that the next could use: the scores are made again.
  for (int64_t first = 0; first < dim; first += kThreads) {
    const int64_t i = first + threadIdx.x;
    SoftmaxPartial total = {};
    for (int64_t begin = 0; begin < row.context; begin += kThreads) {
      const int positions = static_cast<int>(min(int64_t{kThreads}, row.context - begin));
      const int64_t p = begin + threadIdx.x;
      __syncthreads();  // the chunk before has been read
      float score = -INFINITY;
      float value_scale = 1.0f;
      if (threadIdx.x < positions) {
        const int32_t block = blocks[row.first_block + p / kBlockTokens];
        const int64_t offset = KvHeadOffset<kType>(layer.kv_heads, dim, block, kv_head);
        const char* keys = static_cast<const char*>(layer.keys) + offset;
        const char* values = static_cast<const char*>(layer.values) + offset;
        float dot = 0;
        for (int64_t d = 0; d < dim; ++d) {
          dot = fmaf(query[d], LoadKv<kType>(keys, dim, p % kBlockTokens, d), dot);
        }
        score = dot * LoadKvScale<kType>(keys, dim, p % kBlockTokens) * scale;
        value_scale = LoadKvScale<kType>(values, dim, p % kBlockTokens);
        heads[threadIdx.x] = offset;
      }
      const float max = MaxOverBlock(score, scratch);
      weights[threadIdx.x] = expf(score - max);
      scaled[threadIdx.x] = weights[threadIdx.x] * value_scale;
      __syncthreads();
      if (i < dim) {
        SoftmaxPartial chunk = {max, 0.0f, 0.0f};
        for (int j = 0; j < positions; ++j) {
          const char* values = static_cast<const char*>(layer.values) + heads[j];
          AddPosition(weights[j], scaled[j], LoadKv<kType>(values, dim, j % kBlockTokens, i),
                      &chunk);
        }
        if (begin == 0) {
          total = chunk;
        } else {
          MergePartial(chunk, &total);
        }
      }
    }
    if (i < dim) out.data[row.row * out.stride + head * dim + i] = total.value / total.sum;
  }
}

}  // namespace

cudaError_t Attention(const Queue& queue, Matrix q, const AttentionRow* rows, int64_t num_rows,
                      const int32_t* blocks, const KvCacheLayer& layer, float scale, Matrix out) {
  auto kernel = layer.dtype == DType::kF16  ? AttentionKernel<DType::kF16>
                : layer.dtype == DType::kI8 ? AttentionKernel<DType::kI8>
                                            : AttentionKernel<DType::kF32>;
  return Launch(queue, kernel, Grid(num_rows, q.cols / layer.head_dim), kThreads, q, rows, blocks,
                layer, scale, out);
}

}  // namespace lm::cuda
