// LowRankUpdate: what an adapter adds to products with a model's weights (LoRA: Hu et al. 2021,
// arXiv 2106.09685), for the rows that are computed with it:
//   y = W x  +  scale * factor * B (A x)     // A (rank, cols), B (rows of W, rank)
// The product with W is one for all rows, whatever their adapters; so a row without has its bits.
#ifndef LM_ENGINE_MODEL_LOW_RANK_H_
#define LM_ENGINE_MODEL_LOW_RANK_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/backend/backend.h"
#include "engine/model/adapter_set.h"

namespace lm {

// Several As over the same input are one matrix, (all ranks, cols).
struct LowRankUpdate {
  struct Part {
    std::unique_ptr<WeightMatrix> b = nullptr;
    int64_t first_low = 0;  // of its rank columns of A x
    int64_t first_col = 0;  // of the columns of y that it adds to
    float factor = 1;       // alpha / rank
  };
  int32_t adapter = 0;
  // Of an embedding's update (vocabulary, rank): a token's row of it is A x.
  std::unique_ptr<WeightMatrix> a = nullptr;
  std::vector<Part> parts = {};

  int64_t ranks() const;  // columns of A x
};

// Adds to the columns of `out`, the product with W of the same input, what the updates make of
// those of its rows that have their adapters. `low` has room for (rows, ranks of any update).
// REQUIRES: out does not overlap the input.
absl::Status AddUpdates(absl::Span<const LowRankUpdate> updates, absl::Span<const AdaptedRows> runs,
                        const ProductInput& input, Tensor low, Backend* backend, Tensor out);

// The same of an embedding, which is `scale` times the tokens' rows.
absl::Status AddEmbeddingUpdates(absl::Span<const LowRankUpdate> updates,
                                 absl::Span<const AdaptedRows> runs, float scale, Tensor low,
                                 Backend* backend, Tensor out);

}  // namespace lm

#endif  // LM_ENGINE_MODEL_LOW_RANK_H_
