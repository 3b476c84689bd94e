// Causal attention of one query head of one token a thread block, chunk by chunk (backend.h).
//
// In a chunk of 256 absolute positions thread j makes the score of the chunk's position j, a dot
// product in ascending order; then a thread a value of the head walks the positions in ascending
// order, and merges the chunk with the ones before it. Those are the reference's orders, for every
// shape. Of a position that the token does not see nothing is read, its block's number neither.
#include <cmath>

#include "engine/backend/cuda/kv_value.cuh"
#include "engine/backend/cuda/launch.cuh"
#include "engine/backend/cuda/op_arithmetic.cuh"

namespace lm::cuda {
namespace {

// Positions a chunk, and at least the values of a head: backend.h's kAttentionChunk, kMaxHeadDim.
constexpr int kThreads = 256;

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
__global__ void AttentionKernel(Matrix q, StepRows step, const int32_t* step_blocks,
                                KvCacheLayer layer, AttentionScores scores, Matrix out) {
  __shared__ float weights[kThreads];
  __shared__ float scaled[kThreads];   // weights times the values' scales
  __shared__ int64_t heads[kThreads];  // where the positions' blocks have this head
  __shared__ float scratch[kThreads / kWarp];

  const int64_t row = blockIdx.x;
  const Sequence sequence = step.sequences[step.sequence_of_row[row]];
  const int32_t* blocks = step_blocks + sequence.first_block;
  const int64_t context = sequence.first_position + (row - sequence.first_row) + 1;
  const int64_t first = scores.window > 0 ? max(context - scores.window, int64_t{0}) : 0;
  const int64_t dim = layer.head_dim;
  const int64_t head = blockIdx.y;
  const int64_t kv_head = head / (q.cols / dim / layer.kv_heads);
  const float* query = q.data + row * q.stride + head * dim;

  SoftmaxPartial total = {};
  for (int64_t begin = first / kThreads * kThreads; begin < context; begin += kThreads) {
    const int64_t p = begin + threadIdx.x;
    __syncthreads();  // the chunk before has been read
    float score = -INFINITY;
    float value_scale = 1.0f;
    if (p >= first && p < context) {
      const int64_t offset =
          KvHeadOffset<kType>(layer.block_stride, dim, blocks[p / kBlockTokens], kv_head);
      const char* keys = static_cast<const char*>(layer.keys) + offset;
      const char* values = static_cast<const char*>(layer.values) + offset;
      float dot = 0;
      for (int64_t d = 0; d < dim; ++d) {
        dot = fmaf(query[d], LoadKv<kType>(keys, dim, p % kBlockTokens, d), dot);
      }
      score = CappedScore(dot * LoadKvScale<kType>(keys, dim, p % kBlockTokens), scores.scale,
                          scores.softcap);
      value_scale = LoadKvScale<kType>(values, dim, p % kBlockTokens);
      heads[threadIdx.x] = offset;
    }
    const float max_score = MaxOverBlock(score, scratch);
    weights[threadIdx.x] = expf(score - max_score);
    scaled[threadIdx.x] = weights[threadIdx.x] * value_scale;
    __syncthreads();
    if (threadIdx.x < dim) {
      SoftmaxPartial chunk = {max_score, 0.0f, 0.0f};
      const int seen = static_cast<int>(max(first - begin, int64_t{0}));
      const int end = static_cast<int>(min(context - begin, int64_t{kThreads}));
      for (int j = seen; j < end; ++j) {
        const char* values = static_cast<const char*>(layer.values) + heads[j];
        AddPosition(weights[j], scaled[j],
                    LoadKv<kType>(values, dim, j % kBlockTokens, threadIdx.x), &chunk);
      }
      if (begin <= first) {
        total = chunk;
      } else {
        MergePartial(chunk, &total);
      }
    }
  }
  if (threadIdx.x >= dim) return;
  if (scores.sinks != nullptr) MergePartial({scores.sinks[head], 1.0f, 0.0f}, &total);
  out.data[row * out.stride + head * dim + threadIdx.x] = total.value / total.sum;
}

}  // namespace

cudaError_t Attention(const Queue& queue, Matrix q, const StepRows& step, const int32_t* blocks,
                      const KvCacheLayer& layer, const AttentionScores& scores, Matrix out) {
  auto kernel = layer.dtype == DType::kF16  ? AttentionKernel<DType::kF16>
                : layer.dtype == DType::kI8 ? AttentionKernel<DType::kI8>
                                            : AttentionKernel<DType::kF32>;
  return Launch(queue, kernel, Grid(q.rows, q.cols / layer.head_dim), kThreads, q, step, blocks,
                layer, scores, out);
}

}  // namespace lm::cuda
