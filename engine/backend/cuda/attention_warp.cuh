// One warp's part of attention on tensor cores (attention_tiles.cu): a tile of rows, over some
// chunks of positions.
#ifndef LM_ENGINE_BACKEND_CUDA_ATTENTION_WARP_H_
#define LM_ENGINE_BACKEND_CUDA_ATTENTION_WARP_H_

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "engine/backend/cuda/attention_tiles.cuh"
#include "engine/backend/cuda/kernels.h"
#include "engine/backend/cuda/kv_value.cuh"
#include "engine/backend/cuda/launch.cuh"
#include "engine/backend/cuda/op_arithmetic.cuh"
#include "engine/backend/cuda/tile_rows.cuh"
#include "engine/backend/cuda/warp_matrix.cuh"

namespace lm::cuda {

// A power of two by which weights times the scales of values have the range that values of F16
// have.
inline constexpr float kValueUnit = 128;

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

// exp(x).
__device__ __forceinline__ float ScoreWeight(float x) {
  constexpr float kLog2E = 1.4426950408889634f;
  return Exp2Approximately(x * kLog2E);
}
// What scores are taken away from: 0 where all are -infinity, so that their weights are 0.
__device__ __forceinline__ float BaseOf(float max) { return max == -INFINITY ? 0.0f : max; }

// exp(value - max), 0 where value is -infinity, whatever max is.
__device__ __forceinline__ float ChunkWeight(float value, float max) {
  return value == -INFINITY ? 0.0f : expf(value - max);
}

// Bits of a word of two binary16 values of positions p and p + 1 that are in [first, end).
__device__ __forceinline__ uint32_t MaskOf(int p, int first, int end) {
  const uint32_t low = p >= first && p < end ? 0xffffu : 0u;
  const uint32_t high = p + 1 >= first && p + 1 < end ? 0xffff0000u : 0u;
  return low | high;
}

// What a launch is given, but for the partial results.
struct AttentionInputs {
  Matrix q;
  StepRows step;
  AttentionTiles tiles;
  const int32_t* blocks;
  KvCacheLayer layer;
  AttentionScores scores;
};

// kSixteens: keys and values have at most 16 times as many values; kExactly: just as many. Shared
// memory of a warp: q as fragments A, of the first and then of the second number, and the merged
// values as fragments C. All of it is inlined, and members are registers.
template <DType kType, int kSixteens, bool kExactly>
class AttentionWarp {
 public:
  __device__ __forceinline__ AttentionWarp(const AttentionInputs& in, const AttentionTile& tile,
                                           int kv_head, char* memory)
      : in_(in),
        tile_(tile),
        kv_head_(kv_head),
        key_dim_(kExactly ? 16 * kSixteens : in.layer.key_dim),
        value_dim_(kExactly ? 16 * kSixteens : in.layer.value_dim),
        key_sixteens_(static_cast<int>(key_dim_) / 16),
        value_sixteens_(static_cast<int>(value_dim_) / 16),
        table_(in.blocks + tile.first_block),
        rows_{FindRow(0), FindRow(8)},
        sight_(rows_),
        first_chunk_(max(tile.first_chunk, sight_.first / kTileChunk)),
        end_chunk_(min(tile.end_chunk, (sight_.end + kTileChunk - 1) / kTileChunk)),
        query_(reinterpret_cast<uint4*>(memory)),
        query_pieces_(key_sixteens_ * kWarp),
        total_(reinterpret_cast<float4*>(memory + 2 * query_pieces_ * sizeof(uint4))) {}

  // Asks for the first chunk's keys and values.
  __device__ __forceinline__ void Prefetch() {
    for (int p = BeginOf(first_chunk_); p < EndOf(first_chunk_); p += kStep) {
      PrefetchHead(in_.layer.keys, key_dim_, table_[p / kStep]);
      PrefetchHead(in_.layer.values, value_dim_, table_[p / kStep]);
    }
  }

  // Puts the queries into shared memory.
  __device__ __forceinline__ void TakeQuery() {
#pragma unroll
    for (int s = 0; s < kSixteens; ++s) {
      if (s >= key_sixteens_) break;
      uint32_t words[2][4];
#pragma unroll
      for (int reg = 0; reg < 4; ++reg) {
        const TileRow& row = rows_[reg % 2];
        float2 values = {0, 0};
        if (row.row >= 0) {
          const float* from = in_.q.data + row.row * in_.q.stride + row.head * key_dim_ + s * 16 +
                              reg / 2 * 8 + 2 * t_;
          values = {from[0], from[1]};
        }
        SplitQuery(values.x, values.y, &words[0][reg], &words[1][reg]);
      }
      query_[s * kWarp + lane_] = uint4{words[0][0], words[0][1], words[0][2], words[0][3]};
      query_[query_pieces_ + s * kWarp + lane_] =
          uint4{words[1][0], words[1][1], words[1][2], words[1][3]};
    }
    __syncwarp();
  }

  // Into `out`, or, where the chunk is to be merged with others, into `partials`. (A row that sees
  // nothing has a chunk, too.)
  __device__ __forceinline__ void Attend(float* partials, const Matrix& out) {
    const bool is_part = tile_.partial >= 0;
    float total_max[2] = {-INFINITY, -INFINITY}, total_sum[2] = {0, 0};
    if (!is_part) {
      for (int n = 0; n < 2 * value_sixteens_; ++n) total_[n * kWarp + lane_] = float4{0, 0, 0, 0};
    }
    for (int chunk = first_chunk_; chunk < end_chunk_ || chunk == first_chunk_; ++chunk) {
      AttendChunk(chunk);
      if (is_part) return StorePart(partials);
      Merge(total_max, total_sum);
    }
    StoreRows(total_max, total_sum, out);
  }

 private:
  using Words = KvWords<kType>;
  static constexpr int kStep = kBlockTokens;  // positions
  static constexpr bool kCodes = kType == DType::kI8;
  // Values, and of short heads the next keys, are asked for before they are needed, where there are
  // registers for them.
  static constexpr bool kValuesAhead = kSixteens <= 8, kKeysAhead = kSixteens <= 4;

  __device__ __forceinline__ TileRow FindRow(int hi) const {
    const int group =
        static_cast<int>(in_.q.cols) / static_cast<int>(key_dim_ * in_.layer.kv_heads);
    return cuda::FindRow(tile_, in_.tiles, group, in_.step, in_.scores.window, kv_head_, g_ + hi);
  }

  // Positions of a chunk that somebody sees, from the beginning of a block.
  __device__ __forceinline__ int BeginOf(int chunk) const {
    return max(chunk * kTileChunk, sight_.first / kStep * kStep);
  }
  __device__ __forceinline__ int EndOf(int chunk) const {
    return min((chunk + 1) * kTileChunk, sight_.end);
  }
  __device__ __forceinline__ bool IsSeen(int p) const {
    return p >= sight_.first && p < sight_.end;
  }

  // The head of a block of the cache, keys or values.
  __device__ __forceinline__ const char* HeadOf(const void* cache, int64_t dim,
                                                int64_t block) const {
    return static_cast<const char*>(cache) +
           KvHeadOffset<kType>(in_.layer.block_stride, dim, block, kv_head_);
  }
  // It as far as this lane reads it.
  __device__ __forceinline__ const Words* WordsOf(const void* cache, int64_t dim,
                                                  int64_t block) const {
    return reinterpret_cast<const Words*>(HeadOf(cache, dim, block)) + lane_;
  }

  __device__ __forceinline__ void PrefetchHead(const void* cache, int64_t dim,
                                               int64_t block) const {
    const char* head = HeadOf(cache, dim, block);
    const int64_t bytes = KvHeadOffset<kType>(0, dim, 0, 1);
    for (int64_t i = lane_ * 128; i < bytes; i += kWarp * 128) PrefetchToL2(head + i);
  }

  // The scales of this lane's positions of a block, in int8: 2t and 2t + 1 of each eight.
  __device__ __forceinline__ void ReadScales(const void* cache, int64_t dim, int64_t block,
                                             float2* scales) const {
    if constexpr (kCodes) {
      const auto* all = reinterpret_cast<const float2*>(HeadOf(cache, dim, block) + kStep * dim);
#pragma unroll
      for (int n = 0; n < 4; ++n) scales[n] = all[n * 4 + t_];
    }
  }

  __device__ __forceinline__ void ReadKeysAhead(int64_t block) {
    const Words* keys = WordsOf(in_.layer.keys, key_dim_, block);
    ReadScales(in_.layer.keys, key_dim_, block, key_scales_);
#pragma unroll
    for (int k = 0; k < kSixteens; ++k) {
#pragma unroll
      for (int pair = 0; pair < 2; ++pair) {
        if (k < key_sixteens_) keys_[2 * k + pair] = keys[(pair * key_sixteens_ + k) * kWarp];
      }
    }
  }

  __device__ __forceinline__ void ReadValuesAhead(const Words* values) {
#pragma unroll
    for (int k = 0; k < 2; ++k) {
#pragma unroll
      for (int d = 0; d < kSixteens; ++d) {
        if (d < value_sixteens_) values_[k][d] = values[(k * value_sixteens_ + d) * kWarp];
      }
    }
  }

  // acc_, sums_ and maxima_ of a chunk.
  __device__ __forceinline__ void AttendChunk(int chunk) {
#pragma unroll
    for (int n = 0; n < 2 * kSixteens; ++n) {
      acc_[n][0] = acc_[n][1] = acc_[n][2] = acc_[n][3] = 0;
    }
    maxima_[0] = maxima_[1] = -INFINITY;
    sums_[0] = sums_[1] = sums_[2] = sums_[3] = 0;
    const int begin = BeginOf(chunk), end = EndOf(chunk);
    int64_t block = begin < end ? table_[begin / kStep] : 0;
    if constexpr (kKeysAhead) {
      if (begin < end) ReadKeysAhead(block);
    }
    for (int p = begin; p < end; p += kStep) {
      const Words* const values = WordsOf(in_.layer.values, value_dim_, block);
      ReadScales(in_.layer.values, value_dim_, block, value_scales_);
      if constexpr (!kKeysAhead) ReadScales(in_.layer.keys, key_dim_, block, key_scales_);
      if constexpr (kValuesAhead) ReadValuesAhead(values);
      const Words* const keys = WordsOf(in_.layer.keys, key_dim_, block);
      if (p + kStep < end) block = table_[p / kStep + 1];
      float scores[4][4] = {};  // of 8 positions each
      MultiplyKeys(keys, scores);
      if constexpr (kKeysAhead) {
        if (p + kStep < end) ReadKeysAhead(block);
      }
      uint32_t weights[4][2];  // of 8 positions: of row g, of row g + 8
      Weigh(p, scores, weights);
      AddValues(p, values, weights);
    }
    if constexpr (kCodes) {
      sums_[0] = SumOfRow(sums_[0]);
      sums_[2] = SumOfRow(sums_[2]);
    }
  }

  __device__ __forceinline__ void MultiplyKeys(const Words* keys, float (&scores)[4][4]) {
#pragma unroll
    for (int k = 0; k < kSixteens; ++k) {
      if (k >= key_sixteens_) break;
      const uint4 low = query_[query_pieces_ + k * kWarp + lane_];
      const uint4 high = query_[k * kWarp + lane_];
      const uint32_t a[2][4] = {{high.x, high.y, high.z, high.w}, {low.x, low.y, low.z, low.w}};
#pragma unroll
      for (int pair = 0; pair < 2; ++pair) {
        uint4 b;
        if constexpr (kKeysAhead) {
          b = Fragments(keys_[2 * k + pair]);
        } else {
          b = Fragments(keys[(pair * key_sixteens_ + k) * kWarp]);
        }
        Multiply16<false>(a[1], b.x, b.y, scores[2 * pair]);
        Multiply16<false>(a[1], b.z, b.w, scores[2 * pair + 1]);
        Multiply16<false>(a[0], b.x, b.y, scores[2 * pair]);
        Multiply16<false>(a[0], b.z, b.w, scores[2 * pair + 1]);
      }
    }
    if constexpr (kCodes) {
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        scores[n][0] *= key_scales_[n].x;
        scores[n][1] *= key_scales_[n].y;
        scores[n][2] *= key_scales_[n].x;
        scores[n][3] *= key_scales_[n].y;
      }
    }
  }

  // Scores become weights; what has been summed is scaled where a maximum has grown.
  __device__ __forceinline__ void Weigh(int p, float (&scores)[4][4], uint32_t (&weights)[4][2]) {
    const bool all_see = p >= sight_.all_first && p + kStep <= sight_.all_end;
    if constexpr (kCodes) FitValueScales(p);
    float keep[2], own_sums[2] = {0, 0};
#pragma unroll
    for (int hi = 0; hi < 2; ++hi) {
      Score(p, hi, all_see, scores);
      float max = -INFINITY;
#pragma unroll
      for (int n = 0; n < 4; ++n) max = fmaxf(max, fmaxf(scores[n][2 * hi], scores[n][2 * hi + 1]));
      max = fmaxf(maxima_[hi], MaxOfRow(max));
      const float base = BaseOf(max);
      keep[hi] = ScoreWeight(maxima_[hi] - base);
      maxima_[hi] = max;
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        float first = ScoreWeight(scores[n][2 * hi] - base);
        float second = ScoreWeight(scores[n][2 * hi + 1] - base);
        if constexpr (kCodes) {
          own_sums[hi] += first;
          own_sums[hi] += second;
          first *= value_scales_[n].x;
          second *= value_scales_[n].y;
        }
        weights[n][hi] = StoreTwoF16(first, second);
      }
    }
    if (__reduce_max_sync(~0u, keep[0] != 1.0f || keep[1] != 1.0f ? 1u : 0u) != 0) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        sums_[i] *= keep[i / 2];
#pragma unroll
        for (int n = 0; n < 2 * kSixteens; ++n) acc_[n][i] *= keep[i / 2];
      }
    }
    if constexpr (kCodes) {
      sums_[0] += own_sums[0];
      sums_[2] += own_sums[1];
    }
  }

  // Scales of values by the unit, finite, and 0 where nobody looks: what lies there can be
  // anything.
  __device__ __forceinline__ void FitValueScales(int p) {
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      value_scales_[n].x = FinitePart(value_scales_[n].x * kValueUnit);
      value_scales_[n].y = FinitePart(value_scales_[n].y * kValueUnit);
      if (IsPartlySeen(p)) {
        const int at = p + n * 8 + 2 * t_;
        if (!IsSeen(at)) value_scales_[n].x = 0;
        if (!IsSeen(at + 1)) value_scales_[n].y = 0;
      }
    }
  }
  __device__ __forceinline__ bool IsPartlySeen(int p) const {
    return p < sight_.first || p + kStep > sight_.end;
  }

  // Products of a row become scores: scaled, capped, with a slope; -infinity where it does not see.
  __device__ __forceinline__ void Score(int p, int hi, bool all_see, float (&scores)[4][4]) const {
    const TileRow& row = rows_[hi];
    const float* slopes = in_.scores.slopes;
    if (in_.scores.softcap <= 0 && slopes == nullptr) {
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        scores[n][2 * hi] *= in_.scores.scale;
        scores[n][2 * hi + 1] *= in_.scores.scale;
      }
    } else {
      const float slope = slopes == nullptr ? 0.0f : slopes[row.head];
      for (int n = 0; n < 4; ++n) {
        for (int i = 0; i < 2; ++i) {
          const int at = p + n * 8 + 2 * t_ + i;
          float& score = scores[n][2 * hi + i];
          score = CappedScore(score, in_.scores.scale, in_.scores.softcap);
          const int apart = at < row.position ? row.position - at : at - row.position;
          if (slopes != nullptr) score -= slope * static_cast<float>(apart);
        }
      }
    }
    if (all_see) return;
#pragma unroll
    for (int n = 0; n < 4; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int at = p + n * 8 + 2 * t_ + i;
        if (at < row.first || at >= row.end) scores[n][2 * hi + i] = -INFINITY;
      }
    }
  }

  __device__ __forceinline__ void AddValues(int p, const Words* values,
                                            const uint32_t (&weights)[4][2]) {
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const uint32_t a[4] = {weights[2 * k][0], weights[2 * k][1], weights[2 * k + 1][0],
                             weights[2 * k + 1][1]};
      constexpr uint32_t kOnes = 0x3c003c00u;
      if constexpr (!kCodes) Multiply16<false>(a, kOnes, kOnes, sums_);
      if constexpr (kValuesAhead) {
        if (IsPartlySeen(p)) {
#pragma unroll
          for (int d = 0; d < kSixteens; ++d) MaskUnseen(p + k * 16, &values_[k][d]);
        }
      }
#pragma unroll
      for (int d = 0; d < kSixteens; ++d) {
        if (d >= value_sixteens_) break;
        if constexpr (!kValuesAhead) {
          values_[0][0] = values[(k * value_sixteens_ + d) * kWarp];
          if (IsPartlySeen(p)) MaskUnseen(p + k * 16, &values_[0][0]);
        }
        const uint4 b = Fragments(values_[kValuesAhead ? k : 0][kValuesAhead ? d : 0]);
        Multiply16<false>(a, b.x, b.y, acc_[2 * d]);
        Multiply16<false>(a, b.z, b.w, acc_[2 * d + 1]);
      }
    }
  }

  // What lies where nobody looks can be anything; codes are always finite.
  __device__ __forceinline__ void MaskUnseen(int p, Words* b) const {
    if constexpr (!kCodes) {
      const uint32_t first = MaskOf(p + 2 * t_, sight_.first, sight_.end);
      const uint32_t second = MaskOf(p + 2 * t_ + 8, sight_.first, sight_.end);
      *b = {b->x & first, b->y & second, b->z & first, b->w & second};
    }
  }

  // [16 rows] of maximum, sum and values.
  __device__ __forceinline__ void StorePart(float* partials) const {
    float* to =
        partials + (tile_.partial * in_.layer.kv_heads + kv_head_) * kTileRows * (value_dim_ + 2);
    for (int hi = 0; hi < 2; ++hi) {
      float* row = to + (g_ + 8 * hi) * (value_dim_ + 2);
      if (t_ == 0) {
        row[0] = maxima_[hi];
        row[1] = sums_[2 * hi];
      }
#pragma unroll
      for (int n = 0; n < 2 * kSixteens; ++n) {
        if (n >= 2 * value_sixteens_) break;
        constexpr float kUnit = kCodes ? 1 / kValueUnit : 1;
        row[2 + n * 8 + 2 * t_] = acc_[n][2 * hi] * kUnit;
        row[2 + n * 8 + 2 * t_ + 1] = acc_[n][2 * hi + 1] * kUnit;
      }
    }
  }

  // Adds a chunk to those before.
  __device__ __forceinline__ void Merge(float* total_max, float* total_sum) {
    float keep[2], add[2];
    for (int hi = 0; hi < 2; ++hi) {
      const float max = fmaxf(total_max[hi], maxima_[hi]);
      keep[hi] = ChunkWeight(total_max[hi], max);
      add[hi] = ChunkWeight(maxima_[hi], max);
      total_max[hi] = max;
      total_sum[hi] = total_sum[hi] * keep[hi] + sums_[2 * hi] * add[hi];
      if constexpr (kCodes) add[hi] *= 1 / kValueUnit;
    }
#pragma unroll
    for (int n = 0; n < 2 * kSixteens; ++n) {
      if (n >= 2 * value_sixteens_) break;
      float4& to = total_[n * kWarp + lane_];
      to.x = to.x * keep[0] + acc_[n][0] * add[0];
      to.y = to.y * keep[0] + acc_[n][1] * add[0];
      to.z = to.z * keep[1] + acc_[n][2] * add[1];
      to.w = to.w * keep[1] + acc_[n][3] * add[1];
    }
  }

  __device__ __forceinline__ void StoreRows(const float* total_max, const float* total_sum,
                                            const Matrix& out) const {
    for (int hi = 0; hi < 2; ++hi) {
      const TileRow& row = rows_[hi];
      if (row.row < 0) continue;
      float keep = 1, sum = total_sum[hi];
      if (in_.scores.sinks != nullptr) {
        const float sink = in_.scores.sinks[row.head], max = fmaxf(total_max[hi], sink);
        keep = ChunkWeight(total_max[hi], max);
        sum = sum * keep + ChunkWeight(sink, max);
      }
      float* to = out.data + row.row * out.stride + row.head * value_dim_ + 2 * t_;
      for (int n = 0; n < 2 * value_sixteens_; ++n) {
        const float4 value = total_[n * kWarp + lane_];
        to[n * 8] = (hi == 0 ? value.x : value.z) * keep / sum;
        to[n * 8 + 1] = (hi == 0 ? value.y : value.w) * keep / sum;
      }
    }
  }

  const int lane_ = threadIdx.x % kWarp, g_ = lane_ / 4, t_ = lane_ % 4;
  const AttentionInputs in_;
  const AttentionTile tile_;
  const int kv_head_;
  const int64_t key_dim_, value_dim_;
  const int key_sixteens_, value_sixteens_;
  const int32_t* const table_;  // of blocks
  const TileRow rows_[2];
  const TileSight sight_;
  const int first_chunk_, end_chunk_;
  uint4* const query_;
  const int query_pieces_;  // of one of both numbers
  float4* const total_;
  Words keys_[kKeysAhead ? 2 * kSixteens : 1];
  Words values_[2][kValuesAhead ? kSixteens : 1];
  float2 key_scales_[4], value_scales_[4];
  // Of a chunk. sums_: as one more value, or (of codes) in [0] and [2] a lane's own weights.
  float acc_[2 * kSixteens][4], sums_[4];
  float maxima_[2];
};

}  // namespace lm::cuda

#endif  // LM_ENGINE_BACKEND_CUDA_ATTENTION_WARP_H_
