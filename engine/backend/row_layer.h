// Rows that are key and value at once, of all heads (DeepSeek-V4's attention): where they lie, what
// they are pooled of, and how they are attended to. The ops are Backend's.
#ifndef LM_ENGINE_BACKEND_ROW_LAYER_H_
#define LM_ENGINE_BACKEND_ROW_LAYER_H_

#include <cstdint>

#include "engine/backend/step_tables.h"
#include "engine/backend/window.h"
#include "engine/tensor/tensor.h"

namespace lm {

// One layer's paged rows, F32: of every run of `every` positions of a sequence there is one, where
// the last of them lies (position p of a context in block blocks[p / kKvBlockTokens] of its class,
// StepTables). Row r of a sequence is that of the run [r * every, (r + 1) * every).
struct RowLayer {
  float* data = nullptr;
  int32_t num_blocks = 0;
  int32_t dim = 0;
  int32_t every = 1;         // divides kKvBlockTokens, or is a multiple of it
  int64_t block_stride = 0;  // values
  int32_t cache_class = 0;

  // Values of a block.
  int64_t block_values() const {
    return int64_t{dim} * (every < kKvBlockTokens ? kKvBlockTokens / every : 1);
  }
  float* Row(int64_t block, int64_t token) const {
    return data + block * block_stride + token / every * dim;
  }
  // Rows that a token at `position` sees.
  int64_t SeenAt(int64_t position) const { return (position + 1) / every; }
};

// What runs of tokens are pooled of, a row a token.
struct PoolInputs {
  Tensor values, scores;  // (T, parts * dim), parts being 2 where runs overlap, else 1
  Tensor places;          // (every, parts * dim): added to the scores, by the place in the run
  int32_t every = 1;
  bool overlaps = false;

  // Values of a state for `dim` pooled ones.
  static constexpr int64_t StateSize(int64_t dim, bool overlaps) {
    return (overlaps ? 9 : 3) * dim;
  }
};

// Attention to rows that are keys and values at once.
struct RowAttention {
  RowLayer near;      // a row a token
  Window window;      // of these; causal
  RowLayer far;       // pooled ones; no data: none
  Tensor chosen;      // (T, most) I32: those of far, ascending, then -1; empty: all of them
  float scale = 1;    // of q . row
  Tensor sinks = {};  // (1, heads), as AttentionOptions has them
};

}  // namespace lm

#endif  // LM_ENGINE_BACKEND_ROW_LAYER_H_
