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
#include "engine/backend/cuda/kv_value.cuh"
#include "engine/backend/cuda/launch.cuh"
#include "engine/backend/cuda/op_arithmetic.cuh"
#include "engine/backend/cuda/warp_matrix.cuh"

namespace lm::cuda {
namespace {

constexpr int kStep = kBlockTokens;  // positions

// A power of two by which weights times the scales of values have the range that values of F16
// have.
constexpr float kValueUnit = 128;

// What a lane reads of 16 by 16 values.
template <DType kType>
using KvWords = std::conditional_t<kType == DType::kI8, uint2, uint4>;
__device__ __forceinline__ uint4 Fragments(const uint4& words) { return words; }
__device__ __forceinline__ uint4 Fragments(const uint2& codes) {
  uint4 b;
  LoadFourCodes(codes.x, &b.x, &b.y);
  LoadFourCodes(codes.y, &b.z, &b.w);
  return b;
}

// The greatest of what the four lanes have that hold a row.
__device__ __forceinline__ float MaxOfRow(float value) {
  value = fmaxf(value, __shfl_xor_sync(~0u, value, 1));
  return fmaxf(value, __shfl_xor_sync(~0u, value, 2));
}

// The sum of it.
__device__ __forceinline__ float SumOfRow(float value) {
  value += __shfl_xor_sync(~0u, value, 1);
  return value + __shfl_xor_sync(~0u, value, 2);
}

// A scale, or the greatest that binary16 has where it is greater; NaN stays.
__device__ __forceinline__ float FinitePart(float scale) {
  return scale > 65504.0f ? 65504.0f : scale;
}

__device__ __forceinline__ uint32_t PackFinite16(float first, float second) {
  return StoreFiniteF16(first) | uint32_t{StoreFiniteF16(second)} << 16;
}
__device__ __forceinline__ bool IsFinite16(uint32_t bits) { return (~bits & 0x7c00u) != 0; }
__device__ __forceinline__ float Rounded16(float value) { return LoadF16(StoreFiniteF16(value)); }

// exp(x).
__device__ __forceinline__ float WeightOf(float x) {
  constexpr float kLog2E = 1.4426950408889634f;
  return Exp2Approximately(x * kLog2E);
}
// What scores are taken away from: 0 where all are -infinity, so that their weights are 0.
__device__ __forceinline__ float BaseOf(float max) { return max == -INFINITY ? 0.0f : max; }

// exp(value - max), 0 where value is -infinity, whatever max is.
__device__ __forceinline__ float Weight(float value, float max) {
  return value == -INFINITY ? 0.0f : expf(value - max);
}

// The row of a tile that a lane's values 0, 1 (hi = 0) or 2, 3 of a fragment C belong to.
struct TileRow {
  int row = -1;  // of the step; -1: none
  int head = 0;  // of the query
  int position = 0;
  int first = 0, end = 0;  // what it sees
};

struct TileShape {
  int group, heads;  // TileHeads
};

__device__ __forceinline__ TileRow FindRow(const AttentionTile& tile, const AttentionTiles& tiles,
                                           const TileShape& shape, const StepRows& step,
                                           const Window& window, int kv_head, int index) {
  TileRow found;
  const int token = index / shape.heads, head = tile.first_head + index % shape.heads;
  if (token >= tile.count || head >= shape.group) return found;
  found.row = tiles.tokens[tile.first + token];
  found.head = kv_head * shape.group + head;
  const Sequence sequence = step.sequences[step.sequence_of_row[found.row]];
  found.position = sequence.first_position + (found.row - sequence.first_row);
  const SeenRange seen =
      SeenBy(window, found.position, int64_t{sequence.first_position} + sequence.num_tokens);
  found.first = static_cast<int>(seen.first);
  found.end = static_cast<int>(seen.end);
  return found;
}

// Bits of a word of two binary16 values of positions p and p + 1 that are in [first, end).
__device__ __forceinline__ uint32_t MaskOf(int p, int first, int end) {
  const uint32_t low = p >= first && p < end ? 0xffffu : 0u;
  const uint32_t high = p + 1 >= first && p + 1 < end ? 0xffff0000u : 0u;
  return low | high;
}

// Asks for a head of a block of the cache, keys or values.
template <DType kType>
__device__ __forceinline__ void PrefetchHead(const KvCacheLayer& layer, const void* data,
                                             int64_t dim, int64_t block, int64_t kv_head,
                                             int lane) {
  const char* head =
      static_cast<const char*>(data) + KvHeadOffset<kType>(layer.block_stride, dim, block, kv_head);
  const int64_t bytes = KvHeadOffset<kType>(0, dim, 0, 1);
  for (int64_t i = lane * 128; i < bytes; i += kWarp * 128) PrefetchToL2(head + i);
}

// Two values of a query as two binary16 numbers each.
__device__ __forceinline__ void SplitQuery(float first, float second, uint32_t* high,
                                           uint32_t* low) {
  *high = StoreTwoF16(first, second);
  if (IsFinite16(*high) && IsFinite16(*high >> 16)) {
    *low = StoreTwoF16(first - LoadF16(static_cast<uint16_t>(*high)),
                       second - LoadF16(static_cast<uint16_t>(*high >> 16)));
    return;
  }
  *high = PackFinite16(first, second);
  *low = PackFinite16(first - Rounded16(first), second - Rounded16(second));
}

// kSixteens: keys and values have at most 16 times as many values; kExactly: just as many. Shared
// memory of a warp: q as fragments A, of the first and then of the second number, and the merged
// values as fragments C.
template <DType kType, int kSixteens, bool kExactly>
__global__ __launch_bounds__(128, 2) void AttentionTilesKernel(
    Matrix q, StepRows step, AttentionTiles tiles, const int32_t* blocks, KvCacheLayer layer,
    AttentionScores scores, float* partials, int shared_bytes_a_warp, Matrix out) {
  LetNextKernelBegin();
  const int lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
  const int64_t index = int64_t{blockIdx.x} * (blockDim.x / kWarp) + threadIdx.x / kWarp;
  if (index >= *tiles.num_tiles) return WaitForKernelBefore();
  const AttentionTile tile = tiles.tiles[index];
  const int kv_head = static_cast<int>(blockIdx.y);
  const int64_t key_dim = kExactly ? 16 * kSixteens : layer.key_dim;
  const int64_t value_dim = kExactly ? 16 * kSixteens : layer.value_dim;
  const int key_sixteens = static_cast<int>(key_dim) / 16;
  const int value_sixteens = static_cast<int>(value_dim) / 16;
  TileShape shape;
  shape.group = static_cast<int>(q.cols) / static_cast<int>(key_dim * layer.kv_heads);
  shape.heads = static_cast<int>(TileHeads(shape.group));

  // Positions that some row sees, and those that all see: [all_first, all_end).
  TileRow rows[2];
  int first_seen = INT32_MAX, end_seen = 0, all_first = 0, all_end = INT32_MAX;
  for (int hi = 0; hi < 2; ++hi) {
    rows[hi] = FindRow(tile, tiles, shape, step, scores.window, kv_head, g + 8 * hi);
    if (rows[hi].row < 0) continue;
    first_seen = min(first_seen, rows[hi].first);
    end_seen = max(end_seen, rows[hi].end);
    all_first = max(all_first, rows[hi].first);
    all_end = min(all_end, rows[hi].end);
  }
  for (int apart = 4; apart < kWarp; apart *= 2) {
    first_seen = min(first_seen, __shfl_xor_sync(~0u, first_seen, apart));
    end_seen = max(end_seen, __shfl_xor_sync(~0u, end_seen, apart));
    all_first = max(all_first, __shfl_xor_sync(~0u, all_first, apart));
    all_end = min(all_end, __shfl_xor_sync(~0u, all_end, apart));
  }

  const int first_chunk = max(tile.first_chunk, first_seen / kTileChunk);
  const int end_chunk = min(tile.end_chunk, (end_seen + kTileChunk - 1) / kTileChunk);
  const int32_t* table = blocks + tile.first_block;
  // So far everything is the step's, and older than the kernel before. What it may still store is
  // in the same cache as what has long been there, of which a chunk is brought near meanwhile.
  for (int p = max(first_chunk * kTileChunk, first_seen / kStep * kStep);
       p < min((first_chunk + 1) * kTileChunk, end_seen); p += kStep) {
    PrefetchHead<kType>(layer, layer.keys, key_dim, table[p / kStep], kv_head, lane);
    PrefetchHead<kType>(layer, layer.values, value_dim, table[p / kStep], kv_head, lane);
  }
  WaitForKernelBefore();

  char* memory = DynamicShared() + threadIdx.x / kWarp * shared_bytes_a_warp;
  auto* query = reinterpret_cast<uint4*>(memory);
  const int query_pieces = key_sixteens * kWarp;  // of one of both numbers
#pragma unroll
  for (int s = 0; s < kSixteens; ++s) {
    if (s >= key_sixteens) break;
    uint32_t words[2][4];
#pragma unroll
    for (int reg = 0; reg < 4; ++reg) {
      const TileRow& row = rows[reg % 2];
      float2 values = {0, 0};
      if (row.row >= 0) {
        const float* from =
            q.data + row.row * q.stride + row.head * key_dim + s * 16 + reg / 2 * 8 + 2 * t;
        values = {from[0], from[1]};
      }
      SplitQuery(values.x, values.y, &words[0][reg], &words[1][reg]);
    }
    query[s * kWarp + lane] = uint4{words[0][0], words[0][1], words[0][2], words[0][3]};
    query[query_pieces + s * kWarp + lane] =
        uint4{words[1][0], words[1][1], words[1][2], words[1][3]};
  }
  __syncwarp();
  auto* total = reinterpret_cast<float4*>(memory + 2 * query_pieces * sizeof(uint4));

  const bool merges = tile.partial < 0;
  float total_max[2] = {-INFINITY, -INFINITY}, total_sum[2] = {0, 0};
  if (merges) {
    for (int n = 0; n < 2 * value_sixteens; ++n) {
      total[n * kWarp + lane] = float4{0, 0, 0, 0};
    }
  }
  // A block's keys, or values, of the head, as far as this lane reads them.
  using Words = KvWords<kType>;
  constexpr bool kCodes = kType == DType::kI8;
  const auto head_of = [&](const void* cache, int64_t dim, int64_t block) {
    return reinterpret_cast<const Words*>(
               static_cast<const char*>(cache) +
               KvHeadOffset<kType>(layer.block_stride, dim, block, kv_head)) +
           lane;
  };
  // The scales of this lane's positions of a block, in int8: 2t and 2t + 1 of each eight.
  const auto read_scales = [&](const void* cache, int64_t dim, int64_t block, float2* scales) {
    if constexpr (kCodes) {
      const char* head = static_cast<const char*>(cache) +
                         KvHeadOffset<kType>(layer.block_stride, dim, block, kv_head);
      const auto* all = reinterpret_cast<const float2*>(head + kStep * dim);
#pragma unroll
      for (int n = 0; n < 4; ++n) scales[n] = all[n * 4 + t];
    }
  };
  // Values, and of short heads the next keys, are asked for before they are needed, where there are
  // registers for them.
  constexpr bool kValuesAhead = kSixteens <= 8, kKeysAhead = kSixteens <= 4;
  Words k_ahead[kKeysAhead ? 2 * kSixteens : 1];
  float2 k_scales[4], v_scales[4];
  const auto read_keys = [&](int64_t block) {
    const Words* keys = head_of(layer.keys, key_dim, block);
    read_scales(layer.keys, key_dim, block, k_scales);
#pragma unroll
    for (int k = 0; k < kSixteens; ++k) {
#pragma unroll
      for (int pair = 0; pair < 2; ++pair) {
        if (k < key_sixteens) k_ahead[2 * k + pair] = keys[(pair * key_sixteens + k) * kWarp];
      }
    }
  };
  const bool is_plain = scores.softcap <= 0 && scores.slopes == nullptr;
  // sums: as one more value, or (of codes) in sums[0] and sums[2] a lane's own weights.
  float acc[2 * kSixteens][4], sums[4];
  float maxima[2];
  for (int chunk = first_chunk; chunk < end_chunk || chunk == first_chunk; ++chunk) {
#pragma unroll
    for (int n = 0; n < 2 * kSixteens; ++n) {
      acc[n][0] = acc[n][1] = acc[n][2] = acc[n][3] = 0;
    }
    maxima[0] = maxima[1] = -INFINITY;
    sums[0] = sums[1] = sums[2] = sums[3] = 0;
    const int begin = max(chunk * kTileChunk, first_seen / kStep * kStep);
    const int end = min((chunk + 1) * kTileChunk, end_seen);
    int64_t block = begin < end ? table[begin / kStep] : 0;
    if constexpr (kKeysAhead) {
      if (begin < end) read_keys(block);
    }
    for (int p = begin; p < end; p += kStep) {
      const Words* const values = head_of(layer.values, value_dim, block);
      Words v[2][kValuesAhead ? kSixteens : 1];
      read_scales(layer.values, value_dim, block, v_scales);
      if constexpr (!kKeysAhead) read_scales(layer.keys, key_dim, block, k_scales);
      if constexpr (kValuesAhead) {
#pragma unroll
        for (int k = 0; k < 2; ++k) {
#pragma unroll
          for (int d = 0; d < kSixteens; ++d) {
            if (d < value_sixteens) v[k][d] = values[(k * value_sixteens + d) * kWarp];
          }
        }
      }
      const Words* const keys = head_of(layer.keys, key_dim, block);
      if (p + kStep < end) block = table[p / kStep + 1];
      float s[4][4] = {};  // of 8 positions each
#pragma unroll
      for (int k = 0; k < kSixteens; ++k) {
        if (k >= key_sixteens) break;
        const uint4 low = query[query_pieces + k * kWarp + lane], high = query[k * kWarp + lane];
        const uint32_t a[2][4] = {{high.x, high.y, high.z, high.w}, {low.x, low.y, low.z, low.w}};
#pragma unroll
        for (int pair = 0; pair < 2; ++pair) {
          uint4 b;
          if constexpr (kKeysAhead) {
            b = Fragments(k_ahead[2 * k + pair]);
          } else {
            b = Fragments(keys[(pair * key_sixteens + k) * kWarp]);
          }
          Multiply16<false>(a[1], b.x, b.y, s[2 * pair]);
          Multiply16<false>(a[1], b.z, b.w, s[2 * pair + 1]);
          Multiply16<false>(a[0], b.x, b.y, s[2 * pair]);
          Multiply16<false>(a[0], b.z, b.w, s[2 * pair + 1]);
        }
      }
      if constexpr (kCodes) {
#pragma unroll
        for (int n = 0; n < 4; ++n) {
          s[n][0] *= k_scales[n].x;
          s[n][1] *= k_scales[n].y;
          s[n][2] *= k_scales[n].x;
          s[n][3] *= k_scales[n].y;
        }
      }
      if constexpr (kKeysAhead) {
        if (p + kStep < end) read_keys(block);
      }
      const bool all_see = p >= all_first && p + kStep <= all_end;
      const bool partly = p < first_seen || p + kStep > end_seen;
      if constexpr (kCodes) {
#pragma unroll
        for (int n = 0; n < 4; ++n) {
          v_scales[n].x = FinitePart(v_scales[n].x * kValueUnit);
          v_scales[n].y = FinitePart(v_scales[n].y * kValueUnit);
          if (partly) {  // what lies where nobody looks can be anything
            const int at = p + n * 8 + 2 * t;
            if (at < first_seen || at >= end_seen) v_scales[n].x = 0;
            if (at + 1 < first_seen || at + 1 >= end_seen) v_scales[n].y = 0;
          }
        }
      }
      uint32_t weights[4][2];  // of 8 positions: of row g, of row g + 8
      float keep[2], own_sums[2] = {0, 0};
#pragma unroll
      for (int hi = 0; hi < 2; ++hi) {
        const TileRow& row = rows[hi];
        if (is_plain) {
#pragma unroll
          for (int n = 0; n < 4; ++n) {
            s[n][2 * hi] *= scores.scale;
            s[n][2 * hi + 1] *= scores.scale;
          }
        } else {
          const float slope = scores.slopes == nullptr ? 0.0f : scores.slopes[row.head];
          for (int n = 0; n < 4; ++n) {
            for (int i = 0; i < 2; ++i) {
              const int at = p + n * 8 + 2 * t + i;
              float& score = s[n][2 * hi + i];
              score = CappedScore(score, scores.scale, scores.softcap);
              const int apart = at < row.position ? row.position - at : at - row.position;
              if (scores.slopes != nullptr) score -= slope * static_cast<float>(apart);
            }
          }
        }
        if (!all_see) {
#pragma unroll
          for (int n = 0; n < 4; ++n) {
#pragma unroll
            for (int i = 0; i < 2; ++i) {
              const int at = p + n * 8 + 2 * t + i;
              if (at < row.first || at >= row.end) s[n][2 * hi + i] = -INFINITY;
            }
          }
        }
        float max = -INFINITY;
#pragma unroll
        for (int n = 0; n < 4; ++n) max = fmaxf(max, fmaxf(s[n][2 * hi], s[n][2 * hi + 1]));
        max = fmaxf(maxima[hi], MaxOfRow(max));
        const float base = BaseOf(max);
        keep[hi] = WeightOf(maxima[hi] - base);
        maxima[hi] = max;
#pragma unroll
        for (int n = 0; n < 4; ++n) {
          float first = WeightOf(s[n][2 * hi] - base), second = WeightOf(s[n][2 * hi + 1] - base);
          if constexpr (kCodes) {
            own_sums[hi] += first;
            own_sums[hi] += second;
            first *= v_scales[n].x;
            second *= v_scales[n].y;
          }
          weights[n][hi] = StoreTwoF16(first, second);
        }
      }
      if (__reduce_max_sync(~0u, keep[0] != 1.0f || keep[1] != 1.0f ? 1u : 0u) != 0) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          sums[i] *= keep[i / 2];
#pragma unroll
          for (int n = 0; n < 2 * kSixteens; ++n) acc[n][i] *= keep[i / 2];
        }
      }
      if constexpr (kCodes) {
        sums[0] += own_sums[0];
        sums[2] += own_sums[1];
      }
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const uint32_t a[4] = {weights[2 * k][0], weights[2 * k][1], weights[2 * k + 1][0],
                               weights[2 * k + 1][1]};
        constexpr uint32_t kOnes = 0x3c003c00u;
        if constexpr (!kCodes) Multiply16<false>(a, kOnes, kOnes, sums);
        // What lies where nobody looks can be anything; codes are always finite.
        const auto mask = [&](Words* b) {
          if constexpr (!kCodes) {
            const uint32_t first = MaskOf(p + k * 16 + 2 * t, first_seen, end_seen);
            const uint32_t second = MaskOf(p + k * 16 + 2 * t + 8, first_seen, end_seen);
            *b = {b->x & first, b->y & second, b->z & first, b->w & second};
          }
        };
        if constexpr (kValuesAhead && !kCodes) {
          if (partly) {
#pragma unroll
            for (int d = 0; d < kSixteens; ++d) mask(&v[k][d]);
          }
        }
#pragma unroll
        for (int d = 0; d < kSixteens; ++d) {
          if (d >= value_sixteens) break;
          if constexpr (!kValuesAhead) {
            v[0][0] = values[(k * value_sixteens + d) * kWarp];
            if (partly) mask(&v[0][0]);
          }
          const uint4 b = Fragments(v[kValuesAhead ? k : 0][kValuesAhead ? d : 0]);
          Multiply16<false>(a, b.x, b.y, acc[2 * d]);
          Multiply16<false>(a, b.z, b.w, acc[2 * d + 1]);
        }
      }
    }
    if constexpr (kCodes) {
      sums[0] = SumOfRow(sums[0]);
      sums[2] = SumOfRow(sums[2]);
    }
    if (!merges) break;
    float keep[2], add[2];
    for (int hi = 0; hi < 2; ++hi) {
      const float max = fmaxf(total_max[hi], maxima[hi]);
      keep[hi] = Weight(total_max[hi], max);
      add[hi] = Weight(maxima[hi], max);
      total_max[hi] = max;
      total_sum[hi] = total_sum[hi] * keep[hi] + sums[2 * hi] * add[hi];
      if constexpr (kCodes) add[hi] *= 1 / kValueUnit;
    }
#pragma unroll
    for (int n = 0; n < 2 * kSixteens; ++n) {
      if (n >= 2 * value_sixteens) break;
      float4& to = total[n * kWarp + lane];
      to.x = to.x * keep[0] + acc[n][0] * add[0];
      to.y = to.y * keep[0] + acc[n][1] * add[0];
      to.z = to.z * keep[1] + acc[n][2] * add[1];
      to.w = to.w * keep[1] + acc[n][3] * add[1];
    }
  }

  if (!merges) {
    // [16 rows] of maximum, sum and values.
    float* to = partials + (tile.partial * layer.kv_heads + kv_head) * kTileRows * (value_dim + 2);
    for (int hi = 0; hi < 2; ++hi) {
      float* row = to + (g + 8 * hi) * (value_dim + 2);
      if (t == 0) {
        row[0] = maxima[hi];
        row[1] = sums[2 * hi];
      }
#pragma unroll
      for (int n = 0; n < 2 * kSixteens; ++n) {
        if (n >= 2 * value_sixteens) break;
        constexpr float kUnit = kCodes ? 1 / kValueUnit : 1;
        row[2 + n * 8 + 2 * t] = acc[n][2 * hi] * kUnit;
        row[2 + n * 8 + 2 * t + 1] = acc[n][2 * hi + 1] * kUnit;
      }
    }
    return;
  }
  for (int hi = 0; hi < 2; ++hi) {
    const TileRow& row = rows[hi];
    if (row.row < 0) continue;
    float keep = 1, sum = total_sum[hi];
    if (scores.sinks != nullptr) {
      const float sink = scores.sinks[row.head], max = fmaxf(total_max[hi], sink);
      keep = Weight(total_max[hi], max);
      sum = sum * keep + Weight(sink, max);
    }
    float* to = out.data + row.row * out.stride + row.head * value_dim + 2 * t;
    for (int n = 0; n < 2 * value_sixteens; ++n) {
      const float4 value = total[n * kWarp + lane];
      to[n * 8] = (hi == 0 ? value.x : value.z) * keep / sum;
      to[n * 8 + 1] = (hi == 0 ? value.y : value.w) * keep / sum;
    }
  }
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
    keeps[thread] = Weight(before, after);
    adds[thread] = Weight(own, after);
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
    const float keep = Weight(max, greater);
    sum = sum * keep + Weight(sinks[head], greater);
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
