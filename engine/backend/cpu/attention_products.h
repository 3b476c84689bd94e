// The two products of attention over one block of the cache, for rows of a tile (attention.cc): of
// queries with keys, and of weights with values. In floats (float_product_kernel.h), or of codes in
// a cache of int16 (int16_product_kernel.h).
#ifndef LM_ENGINE_BACKEND_CPU_ATTENTION_PRODUCTS_H_
#define LM_ENGINE_BACKEND_CPU_ATTENTION_PRODUCTS_H_

#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"
#include "engine/backend/backend.h"
#include "engine/backend/cpu/cpu_kernels.h"
#include "engine/backend/cpu/scratch.h"

namespace lm {

// Columns that a product takes at a time.
inline constexpr int kAttentionPanel = 16;

// What one worker needs for the rows of a tile.
struct AttentionScratch {
  static AttentionScratch Take(int64_t rows, ScratchLayout* layout) {
    return {.queries = layout->Take<float>(rows * kScoreStride),
            .query_scales = layout->Take<float>(rows),
            .scores = layout->Take<float>(rows * kScoreStride),
            .weight_scales = layout->Take<float>(rows),
            .tail = layout->Take<float>(kKvBlockTokens * kAttentionPanel)};
  }

  float* queries;  // [row][kScoreStride], key_dim of each; or codes, [row][kCodeStride]
  float* query_scales;
  float* scores;         // [row][kScoreStride], kAttentionChunk of each; then the weights
  float* weight_scales;  // of codes of weights, of one block
  float* tail;           // a block's last value columns, where they are fewer than a panel
};

// A block's keys or values of one KV head, and the rows that read it.
struct AttendedBlock {
  char* head;
  int64_t distance_to_next;  // how far behind it lies what will be read next; 0: not known
  int token;                 // of the chunk, of the block's first position
  int first_row, end_row;
};

class AttentionProducts {
 public:
  virtual ~AttentionProducts() = default;

  // A row's query, key_dim values.
  virtual void LoadQuery(const float* query, int row, const AttentionScratch& work) const = 0;
  // What the row's scores are to be multiplied by.
  virtual float QueryScale(int row, const AttentionScratch& work) const = 0;
  // The scores of the block's positions, behind what is seen of them too.
  virtual void Score(const AttendedBlock& keys, const AttentionScratch& work) const = 0;
  // sums[row] += weights * values over the block's first visible(row) positions. May use up the
  // weights. REQUIRES: those of other positions are 0; rows of a query see the same.
  virtual void AddValues(const AttendedBlock& values, absl::FunctionRef<int(int row)> visible,
                         const AttentionScratch& work, float* sums) const = 0;
};

// For a layer whose KV heads have `group` query heads each, rows of sums sum_stride floats apart.
std::unique_ptr<AttentionProducts> MakeAttentionProducts(const CpuKernels& kernels,
                                                         const KvLayer& layer, int group,
                                                         int64_t sum_stride);

}  // namespace lm

#endif  // LM_ENGINE_BACKEND_CPU_ATTENTION_PRODUCTS_H_
