// What attention on tensor cores is given (attention_tiles.cu): tiles of 16 rows, a row being a
// query head of a token, that read the same keys and values.
#ifndef LM_ENGINE_BACKEND_CUDA_ATTENTION_TILES_H_
#define LM_ENGINE_BACKEND_CUDA_ATTENTION_TILES_H_

#include <cstdint>

#include "engine/backend/cuda/host_device.cuh"

namespace lm::cuda {

// Positions that are reduced at a time: each chunk by itself, then the chunks are merged in order.
inline constexpr int kTileChunk = 128;
inline constexpr int kTileRows = 16;
// The longest keys and values that these kernels take.
inline constexpr int kMostTileDim = 256;

// One warp's work, for a KV head: the query heads of up to 16 tokens over some chunks of positions.
// The rows of the tile are (token, head of the group), the heads beside each other.
struct AttentionTile {
  int32_t first;        // of its tokens in AttentionTiles::tokens
  int32_t count;        // of its tokens
  int32_t first_head;   // of the group, where it has more than 16 heads
  int32_t first_block;  // where the block table begins that all its tokens have for these positions
  int32_t first_chunk;
  int32_t end_chunk;
  int32_t partial;  // where its result is kept to be merged with other chunks'; -1: it is the end
};

// A token's partial results of its chunks, to be merged in this order: `partial` is the tile's, in
// which the token is number `place`.
struct AttentionPart {
  int32_t partial;
  int32_t place;
};

// Where a step's tiles lie; from step to step in the same places, so that launches are alike.
struct AttentionTiles {
  const int32_t* num_tiles;  // one number
  const AttentionTile* tiles;
  const int32_t* tokens;  // rows of the step
  // Of each token the parts [first_parts[t], first_parts[t + 1]); none where nothing is merged.
  const AttentionPart* parts;
  const int32_t* first_parts;
};

// Heads of a group that stand in a tile, and tokens.
LM_HOST_DEVICE int64_t TileHeads(int64_t group) { return group < kTileRows ? group : kTileRows; }
LM_HOST_DEVICE int64_t TileTokens(int64_t group) { return kTileRows / TileHeads(group); }

}  // namespace lm::cuda

#endif  // LM_ENGINE_BACKEND_CUDA_ATTENTION_TILES_H_
