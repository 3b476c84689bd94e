// Attention on tensor cores over keys and values of F16 or int8 in fragments (kv_value.cuh): for
// decoding, a warp a chunk of positions and a tile of rows that share it; for long prompts, a warp
// a tile and all its chunks.
//
// Order (the same in both). Of a chunk of kTileChunk absolute positions, 32 at a time: scores = q
// k, q being two binary16 numbers whose sum has 22 bits, summed by the tensor cores over the dims
// in order; the running maximum; weights exp(score - maximum) rounded to binary16; their sum (as of
// values that are 1) and the weighted values, scaled where the maximum has grown. Chunks are merged
// in ascending order, a sink last. A row's numbers do not depend on the other rows of its tile:
// what it does not see has the weight 0, which changes no bit.
//
// Codes of int8 become binary16, which is exact. A score is times its key's scale; a weight times
// kValueUnit and its value's scale is rounded to binary16, and the sum of the weights is one of
// F32: each lane's of its positions in order, at a chunk's end those of the four lanes of a row.
#include <algorithm>
#include <cmath>
#include <type_traits>

#include "engine/backend/cuda/attention_tiles.cuh"
#include "engine/backend/cuda/attention_warp.cuh"
#include "engine/backend/cuda/launch.cuh"

namespace lm::cuda {
namespace {

template <DType kType, int kSixteens, bool kExactly>
__global__ __launch_bounds__(128, 2) void AttentionTilesKernel(
    Matrix q, StepRows step, AttentionTiles tiles, const int32_t* blocks, KvCacheLayer layer,
    AttentionScores scores, float* partials, int shared_bytes_a_warp, Matrix out) {
  LetNextKernelBegin();
  const int warp_of_block = threadIdx.x / kWarp;
  const int64_t index = int64_t{blockIdx.x} * (blockDim.x / kWarp) + warp_of_block;
  if (index >= *tiles.num_tiles) return WaitForKernelBefore();
  const AttentionInputs inputs{q, step, tiles, blocks, layer, scores};
  const AttentionTile tile = tiles.tiles[index];
  AttentionWarp<kType, kSixteens, kExactly> warp(
      inputs, tile, static_cast<int>(blockIdx.y),
      DynamicShared() + warp_of_block * shared_bytes_a_warp);
  // So far everything is the step's, and older than the kernel before. What it may still store is
  // in the same cache as what has long been there, of which a chunk is brought near meanwhile.
  warp.Prefetch();
  WaitForKernelBefore();
  warp.TakeQuery();
  warp.Attend(partials, out);
}

// Merges a token's chunks: a thread block a query head, a thread a value (there are no more than
// kMostTileDim). The maxima up to each chunk, and the weights by which the merged ones and the next
// one count, are found for as many chunks as there are threads at a time; what is left to do chunk
// after chunk is a thread's own sum, whose terms wait for nothing.
__global__ void MergeTilesKernel(Matrix q, AttentionTiles tiles, KvCacheLayer layer,
                                 const float* sinks, const float* partials, Matrix out) {
  __shared__ float greatest[kMostTileDim];  // of the chunks so far
  __shared__ float keeps[kMostTileDim], adds[kMostTileDim], sums[kMostTileDim];
  __shared__ const float* rows[kMostTileDim];
  LetNextKernelBegin();

  const int64_t token = blockIdx.x, head = blockIdx.y;
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const int64_t group = q.cols / layer.key_dim / layer.kv_heads;
  const int64_t kv_head = head / group, of_group = head % group;
  // Groups of more than 16 heads have a tile for each 16, one behind the other.
  const int64_t heads = TileHeads(group);
  const int32_t begin = tiles.first_parts[token], end = tiles.first_parts[token + 1];
  WaitForKernelBefore();
  if (begin == end) return;  // a tile has made it
  float max = -INFINITY, sum = 0, value = 0;
  for (int32_t first = begin; first < end; first += threads) {
    const int count = min(static_cast<int>(end - first), threads);
    float own = -INFINITY;
    if (thread < count) {
      const AttentionPart part = tiles.parts[first + thread];
      const int64_t partial = part.partial + of_group / heads;
      const float* row = partials + ((partial * layer.kv_heads + kv_head) * kTileRows +
                                     part.place * heads + of_group % heads) *
                                        (layer.value_dim + 2);
      own = row[0];
      sums[thread] = row[1];
      rows[thread] = row + 2;
    }
    greatest[thread] = own;
    __syncthreads();
    for (int apart = 1; apart < count; apart *= 2) {
      const float other = thread >= apart ? greatest[thread - apart] : -INFINITY;
      __syncthreads();
      greatest[thread] = fmaxf(greatest[thread], other);
      __syncthreads();
    }
    const float before = thread > 0 ? fmaxf(max, greatest[thread - 1]) : max;
    const float after = fmaxf(max, greatest[thread]);
    keeps[thread] = ChunkWeight(before, after);
    adds[thread] = ChunkWeight(own, after);
    max = fmaxf(max, greatest[count - 1]);
    __syncthreads();
    if (thread < layer.value_dim) {
#pragma unroll 8
      for (int j = 0; j < count; ++j) {
        sum = sum * keeps[j] + sums[j] * adds[j];
        value = value * keeps[j] + rows[j][thread] * adds[j];
      }
    }
    __syncthreads();  // read, before the next ones come
  }
  if (thread >= layer.value_dim) return;
  if (sinks != nullptr) {
    const float greater = fmaxf(max, sinks[head]);
    const float keep = ChunkWeight(max, greater);
    sum = sum * keep + ChunkWeight(sinks[head], greater);
    value *= keep;
  }
  out.data[token * out.stride + head * layer.value_dim + thread] = value / sum;
}

}  // namespace

int64_t AttentionPartialBytes(int64_t num_partials, const KvCacheLayer& layer) {
  return num_partials * layer.kv_heads * kTileRows * (layer.value_dim + 2) *
         static_cast<int64_t>(sizeof(float));
}

cudaError_t AttendTiles(const Queue& queue, Matrix q, const StepRows& step,
                        const AttentionTiles& tiles, int64_t most_tiles, bool merges,
                        const int32_t* blocks, const KvCacheLayer& layer,
                        const AttentionScores& scores, float* partials, Matrix out) {
  const int64_t dim = std::max(layer.key_dim, layer.value_dim);
  const int warps = dim <= 128 ? 4 : 2;
  const int shared = static_cast<int>(kTileRows * (4 * layer.key_dim + 4 * layer.value_dim));
  const dim3 grid = Grid(DivideUp(most_tiles, warps), layer.kv_heads);
  auto launch = [&](auto kernel) {
    return LaunchShared(queue, kernel, grid, warps * kWarp, warps * shared, q, step, tiles, blocks,
                        layer, scores, partials, shared, out);
  };
  // (For heads of 128 there are no registers left for a loop without ends.)
  const bool is_64 = layer.key_dim == 64 && layer.value_dim == 64;
  auto launch_for = [&](auto type) {
    constexpr DType kType = type;
    return is_64        ? launch(AttentionTilesKernel<kType, 4, true>)
           : dim <= 64  ? launch(AttentionTilesKernel<kType, 4, false>)
           : dim <= 128 ? launch(AttentionTilesKernel<kType, 8, false>)
                        : launch(AttentionTilesKernel<kType, 16, false>);
  };
  const cudaError_t error = layer.dtype == DType::kI8
                                ? launch_for(std::integral_constant<DType, DType::kI8>())
                                : launch_for(std::integral_constant<DType, DType::kF16>());
  if (error != cudaSuccess || !merges) return error;
  return Launch(queue, MergeTilesKernel, Grid(q.rows, q.cols / layer.key_dim),
                static_cast<unsigned>(DivideUp(layer.value_dim, kWarp) * kWarp), q, tiles, layer,
                scores.sinks, partials, out);
}

}  // namespace lm::cuda
