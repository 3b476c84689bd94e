#include "engine/model/low_rank.h"

#include <algorithm>

#include "engine/base/status_macros.h"

namespace lm {
namespace {

// out += scale * factor * B low, for each part.
absl::Status AddParts(const LowRankUpdate& update, float scale, Tensor low, Backend* backend,
                      Tensor out) {
  for (const LowRankUpdate::Part& part : update.parts) {
    const Tensor own = low.Cols(part.first_low, part.b->cols());
    RETURN_IF_ERROR(backend->ScaleAndCap(own, scale * part.factor, /*cap=*/0));
    RETURN_IF_ERROR(backend->Project(*part.b, ProductInput::Plain(own), /*bias=*/{},
                                     ProductResult::kIsAdded,
                                     out.Cols(part.first_col, part.b->rows())));
  }
  return absl::OkStatus();
}

}  // namespace

int64_t LowRankUpdate::ranks() const {
  int64_t ranks = 0;
  for (const Part& part : parts) ranks = std::max(ranks, part.first_low + part.b->cols());
  return ranks;
}

absl::Status AddUpdates(absl::Span<const LowRankUpdate> updates, absl::Span<const AdaptedRows> runs,
                        const ProductInput& input, Tensor low, Backend* backend, Tensor out) {
  for (const AdaptedRows& run : runs) {
    const int64_t rows = run.end - run.begin;
    ProductInput of_run = input;
    of_run.x = input.x.Rows(run.begin, rows);
    for (const AdapterUse& use : run.adapters) {
      for (const LowRankUpdate& update : updates) {
        if (update.adapter != use.adapter) continue;
        const Tensor own(low.data, DType::kF32, rows, update.ranks());
        RETURN_IF_ERROR(
            backend->Project(*update.a, of_run, /*bias=*/{}, ProductResult::kReplaces, own));
        RETURN_IF_ERROR(AddParts(update, use.scale, own, backend, out.Rows(run.begin, rows)));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status AddEmbeddingUpdates(absl::Span<const LowRankUpdate> updates,
                                 absl::Span<const AdaptedRows> runs, float scale, Tensor low,
                                 Backend* backend, Tensor out) {
  for (const LowRankUpdate& update : updates) {
    const Tensor all(low.data, DType::kF32, out.rows, update.ranks());
    bool looked_up = false;
    for (const AdaptedRows& run : runs) {
      const int64_t rows = run.end - run.begin;
      for (const AdapterUse& use : run.adapters) {
        if (update.adapter != use.adapter) continue;
        if (!looked_up) RETURN_IF_ERROR(backend->Embed(*update.a, scale, all));
        looked_up = true;
        RETURN_IF_ERROR(AddParts(update, use.scale, all.Rows(run.begin, rows), backend,
                                 out.Rows(run.begin, rows)));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace lm
