// The rows of a tile of attention (attention_tiles.cuh) as the lanes of its warp have them, and
// what positions they see.
#ifndef LM_ENGINE_BACKEND_CUDA_TILE_ROWS_H_
#define LM_ENGINE_BACKEND_CUDA_TILE_ROWS_H_

#include <cstdint>

#include "engine/backend/cuda/attention_tiles.cuh"
#include "engine/backend/cuda/kernels.h"
#include "engine/backend/cuda/launch.cuh"

namespace lm::cuda {

// The row of a tile that a lane's values 0, 1 (hi = 0) or 2, 3 of a fragment C belong to.
struct TileRow {
  int row = -1;  // of the step; -1: none
  int head = 0;  // of the query
  int position = 0;
  int first = 0, end = 0;  // what it sees
};

__device__ __forceinline__ TileRow FindRow(const AttentionTile& tile, const AttentionTiles& tiles,
                                           int group, const StepRows& step, const Window& window,
                                           int kv_head, int index) {
  TileRow found;
  const int heads = static_cast<int>(TileHeads(group));
  const int token = index / heads, head = tile.first_head + index % heads;
  if (token >= tile.count || head >= group) return found;
  found.row = tiles.tokens[tile.first + token];
  found.head = kv_head * group + head;
  const Sequence sequence = step.sequences[step.sequence_of_row[found.row]];
  found.position = sequence.first_position + (found.row - sequence.first_row);
  const SeenRange seen =
      SeenBy(window, found.position, int64_t{sequence.first_position} + sequence.num_tokens);
  found.first = static_cast<int>(seen.first);
  found.end = static_cast<int>(seen.end);
  return found;
}

// Positions that some row of a tile sees, [first, end), and those that all see.
struct TileSight {
  int first = INT32_MAX, end = 0;
  int all_first = 0, all_end = INT32_MAX;

  // rows: this lane's two.
  __device__ __forceinline__ explicit TileSight(const TileRow* rows) {
    for (int hi = 0; hi < 2; ++hi) {
      if (rows[hi].row < 0) continue;
      first = min(first, rows[hi].first);
      end = max(end, rows[hi].end);
      all_first = max(all_first, rows[hi].first);
      all_end = min(all_end, rows[hi].end);
    }
    for (int apart = 4; apart < kWarp; apart *= 2) {
      first = min(first, __shfl_xor_sync(~0u, first, apart));
      end = max(end, __shfl_xor_sync(~0u, end, apart));
      all_first = max(all_first, __shfl_xor_sync(~0u, all_first, apart));
      all_end = min(all_end, __shfl_xor_sync(~0u, all_end, apart));
    }
  }
};

}  // namespace lm::cuda

#endif  // LM_ENGINE_BACKEND_CUDA_TILE_ROWS_H_
