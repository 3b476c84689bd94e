// Attention of one query head of one token a thread block, chunk by chunk (backend.h).
//
// In a chunk of 256 absolute positions thread j makes the score of the chunk's position j, a dot
// product in ascending order; then a thread walks the positions in ascending order for a value of
// the head, or for up to three, and merges the chunk with the ones before it. Those are the
// reference's orders, for every shape. Of a position that the token does not see nothing is read,
// its block's number neither.
#include <cmath>

#include "engine/backend/cuda/chunk_max.cuh"
#include "engine/backend/cuda/kv_value.cuh"
#include "engine/backend/cuda/launch.cuh"
#include "engine/backend/cuda/op_arithmetic.cuh"

namespace lm::cuda {
namespace {

constexpr int kThreads = kChunk;
// Values a thread: enough for kMaxHeadDim of them.
constexpr int kValues = 3;

template <DType kType>
__global__ void AttentionKernel(Matrix q, StepRows step, const int32_t* step_blocks,
                                KvCacheLayer layer, AttentionScores scores, Matrix out) {
  __shared__ float weights[kThreads];
  __shared__ float scaled[kThreads];   // weights times the values' scales
  __shared__ int64_t heads[kThreads];  // where the positions' blocks have this head
  __shared__ float scratch[kThreads / kWarp];
  BeginKernel();

  const int64_t row = blockIdx.x;
  const Sequence sequence = step.sequences[step.sequence_of_row[row]];
  const int32_t* blocks = step_blocks + sequence.first_block;
  const int64_t position = sequence.first_position + (row - sequence.first_row);
  const SeenRange seen =
      SeenBy(scores.window, position, int64_t{sequence.first_position} + sequence.num_tokens);
  const int64_t dim = layer.key_dim, value_dim = layer.value_dim;
  const int64_t head = blockIdx.y;
  const int64_t kv_head = head / (q.cols / dim / layer.kv_heads);
  const float* query = q.data + row * q.stride + head * dim;
  const float slope = scores.slopes == nullptr ? 0.0f : scores.slopes[head];

  SoftmaxPartial totals[kValues] = {};
  for (int64_t begin = seen.first / kThreads * kThreads; begin < seen.end; begin += kThreads) {
    const int64_t p = begin + threadIdx.x;
    __syncthreads();  // the chunk before has been read
    float score = -INFINITY;
    float value_scale = 1.0f;
    if (p >= seen.first && p < seen.end) {
      const int64_t block = blocks[p / kBlockTokens];
      const char* keys = static_cast<const char*>(layer.keys) +
                         KvHeadOffset<kType>(layer.block_stride, dim, block, kv_head);
      const int64_t offset = KvHeadOffset<kType>(layer.block_stride, value_dim, block, kv_head);
      const char* values = static_cast<const char*>(layer.values) + offset;
      float dot = 0;
      for (int64_t d = 0; d < dim; ++d) {
        dot = fmaf(query[d], LoadKv<kType>(KvPart::kKeys, keys, dim, p % kBlockTokens, d), dot);
      }
      score = CappedScore(dot * LoadKvScale<kType>(keys, dim, p % kBlockTokens), scores.scale,
                          scores.softcap) -
              slope * static_cast<float>(p < position ? position - p : p - position);
      value_scale = LoadKvScale<kType>(values, value_dim, p % kBlockTokens);
      heads[threadIdx.x] = offset;
    }
    const float max_score = MaxOverChunk(score, scratch);
    weights[threadIdx.x] = expf(score - max_score);
    scaled[threadIdx.x] = weights[threadIdx.x] * value_scale;
    __syncthreads();
    const int first = static_cast<int>(max(seen.first - begin, int64_t{0}));
    const int end = static_cast<int>(min(seen.end - begin, int64_t{kThreads}));
    for (int k = 0; k < kValues; ++k) {
      const int64_t i = threadIdx.x + int64_t{kThreads} * k;
      if (i >= value_dim) break;
      SoftmaxPartial chunk = {max_score, 0.0f, 0.0f};
      for (int j = first; j < end; ++j) {
        const char* values = static_cast<const char*>(layer.values) + heads[j];
        AddPosition(weights[j], scaled[j],
                    LoadKv<kType>(KvPart::kValues, values, value_dim, j % kBlockTokens, i), &chunk);
      }
      if (begin <= seen.first) {
        totals[k] = chunk;
      } else {
        MergePartial(chunk, &totals[k]);
      }
    }
  }
  for (int k = 0; k < kValues; ++k) {
    const int64_t i = threadIdx.x + int64_t{kThreads} * k;
    if (i >= value_dim) return;
    if (scores.sinks != nullptr) MergePartial({scores.sinks[head], 1.0f, 0.0f}, &totals[k]);
    out.data[row * out.stride + head * value_dim + i] = totals[k].value / totals[k].sum;
  }
}

}  // namespace

cudaError_t Attention(const Queue& queue, Matrix q, const StepRows& step, const int32_t* blocks,
                      const KvCacheLayer& layer, const AttentionScores& scores, Matrix out) {
  auto kernel = layer.dtype == DType::kF16  ? AttentionKernel<DType::kF16>
                : layer.dtype == DType::kI8 ? AttentionKernel<DType::kI8>
                                            : AttentionKernel<DType::kF32>;
  return Launch(queue, kernel, Grid(q.rows, q.cols / layer.key_dim), kThreads, q, step, blocks,
                layer, scores, out);
}

}  // namespace lm::cuda
