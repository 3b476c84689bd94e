// Which adapters (low_rank.h) the rows of a step are computed with, as values.
#ifndef LM_ENGINE_MODEL_ADAPTER_SET_H_
#define LM_ENGINE_MODEL_ADAPTER_SET_H_

#include <compare>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace lm {

// An adapter, by its number in ModelInfo::adapters, and how much of it; finite, not 0.
struct AdapterUse {
  int32_t adapter = 0;
  float scale = 1;

  friend auto operator<=>(const AdapterUse&, const AdapterUse&) = default;
};

// Each once, ascending: equal sets are the same computation. Empty: the model as it is.
using AdapterSet = std::vector<AdapterUse>;

// Rows [begin, end) that have the same adapters, some.
struct AdaptedRows {
  int32_t begin = 0;
  int32_t end = 0;
  AdapterSet adapters = {};
};

// Adds a run at the end: nothing for an empty set, and one run where the last goes on.
// REQUIRES: begin is not before the last run's end.
void AppendAdapted(int32_t begin, int32_t end, const AdapterSet& adapters,
                   std::vector<AdaptedRows>* runs);

// Where in a list of rows those of the runs are, as runs of positions. REQUIRES: runs ascend.
std::vector<AdaptedRows> AdaptedAmong(absl::Span<const AdaptedRows> runs,
                                      absl::Span<const int32_t> rows);

}  // namespace lm

#endif  // LM_ENGINE_MODEL_ADAPTER_SET_H_
