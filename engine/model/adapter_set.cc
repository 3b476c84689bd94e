#include "engine/model/adapter_set.h"

#include <algorithm>

namespace lm {

void AppendAdapted(int32_t begin, int32_t end, const AdapterSet& adapters,
                   std::vector<AdaptedRows>* runs) {
  if (adapters.empty() || begin == end) return;
  if (!runs->empty() && runs->back().end == begin && runs->back().adapters == adapters) {
    runs->back().end = end;
  } else {
    runs->push_back({begin, end, adapters});
  }
}

std::vector<AdaptedRows> AdaptedAmong(absl::Span<const AdaptedRows> runs,
                                      absl::Span<const int32_t> rows) {
  std::vector<AdaptedRows> found;
  if (runs.empty()) return found;
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto run =
        std::upper_bound(runs.begin(), runs.end(), rows[i],
                         [](int32_t row, const AdaptedRows& r) { return row < r.end; });
    if (run == runs.end() || rows[i] < run->begin) continue;
    const int32_t position = static_cast<int32_t>(i);
    AppendAdapted(position, position + 1, run->adapters, &found);
  }
  return found;
}

}  // namespace lm
