// Tokens are picked on the device, and only their numbers come back. To the host come rows that
// have a logit which is no number, for an error that names it, more than kMostAdjustments adjusted
// tokens, more than kMostSampledTokens columns, or an order of which SampleRows would have to list
// too much.
#include <algorithm>
#include <utility>

#include "engine/backend/cuda/cuda_ops.h"
#include "engine/base/random.h"
#include "engine/base/status_macros.h"

namespace lm {
namespace {

// A thread looks through all of them.
constexpr size_t kMostAdjustments = 128;

// The rows that are picked on the device, drawn ones first, and what they share.
struct Picks {
  std::vector<cuda::SampledRow> rows;
  std::vector<size_t> places;  // of these among all
  int64_t num_drawn = 0;
  std::vector<uint64_t> masks;
  std::vector<LogitAdjustment> adjustments;
};

void AddPick(const SamplingRow& row, size_t place, absl::Span<const uint64_t>* last_mask,
             Picks* picks) {
  const std::vector<LogitAdjustment> adjustments = AdjustmentsOf(row);
  if (adjustments.size() > kMostAdjustments) return;
  int32_t mask = -1;
  if (!row.allowed.empty() && !picks->rows.empty() && row.allowed.data() == last_mask->data()) {
    mask = picks->rows.back().mask;  // rows without a constraint have the model's in common
  } else if (!row.allowed.empty()) {
    mask = static_cast<int32_t>(picks->masks.size());
    picks->masks.insert(picks->masks.end(), row.allowed.begin(), row.allowed.end());
  }
  *last_mask = row.allowed;
  const SamplingOptions& options = row.options;
  const bool drawn = options.temperature > 0;
  picks->rows.push_back({.row = row.row,
                         .mask = mask,
                         .first_adjustment = static_cast<int32_t>(picks->adjustments.size()),
                         .num_adjustments = static_cast<int32_t>(adjustments.size()),
                         .repeat_penalty = options.repeat_penalty,
                         .inverse_temperature = drawn ? InverseTemperature(options.temperature) : 0,
                         .top_p = options.top_p,
                         .least_weight = ShareOf(options.min_p, kGreatestWeight),
                         .random = RandomBits(options.seed, row.context.size()),
                         .top_k = options.top_k});
  picks->adjustments.insert(picks->adjustments.end(), adjustments.begin(), adjustments.end());
  picks->places.push_back(place);
  picks->num_drawn += drawn;
}

Picks FindPicks(absl::Span<const SamplingRow> rows) {
  Picks picks;
  absl::Span<const uint64_t> last_mask;
  for (const bool drawn : {true, false}) {
    for (size_t i = 0; i < rows.size(); ++i) {
      if ((rows[i].options.temperature > 0) == drawn) AddPick(rows[i], i, &last_mask, &picks);
    }
  }
  return picks;
}

size_t Aligned(size_t bytes) { return (bytes + 15) / 16 * 16; }

}  // namespace

absl::Status CudaBackend::Sample(Tensor logits, absl::Span<const SamplingRow> rows,
                                 std::vector<absl::StatusOr<int32_t>>* tokens,
                                 std::vector<float>* margins) {
  Picks picks;
  if (logits.cols <= cuda::kMostSampledTokens) picks = FindPicks(rows);
  const auto count = static_cast<int64_t>(picks.rows.size());
  std::vector<cuda::PickedToken> picked(count);
  if (count > 0) {
    RETURN_IF_ERROR(device_->Begin());
    const size_t row_bytes = count * sizeof(picks.rows[0]);
    const size_t adjustment_bytes = picks.adjustments.size() * sizeof(picks.adjustments[0]);
    const size_t mask_bytes = picks.masks.size() * sizeof(picks.masks[0]);
    const size_t tokens_at = Aligned(row_bytes);
    const size_t scratch_at = tokens_at + Aligned(count * sizeof(picked[0]));
    const size_t adjustments_at =
        scratch_at + cuda::SampleBytes(picks.num_drawn, count, logits.cols);
    const size_t masks_at = adjustments_at + adjustment_bytes;
    ASSIGN_OR_RETURN(void* memory, picks_.Reserve(device_.get(), masks_at + mask_bytes));
    char* const base = static_cast<char*>(memory);
    RETURN_IF_ERROR(device_->Stage(picks.rows.data(), base, row_bytes));
    RETURN_IF_ERROR(
        device_->Stage(picks.adjustments.data(), base + adjustments_at, adjustment_bytes));
    RETURN_IF_ERROR(device_->Stage(picks.masks.data(), base + masks_at, mask_bytes));
    auto* const on_device = reinterpret_cast<cuda::PickedToken*>(base + tokens_at);
    RETURN_IF_ERROR(device_->Check(
        cuda::SampleRows(device_->queue(), ToMatrix(logits),
                         reinterpret_cast<const cuda::SampledRow*>(base), picks.num_drawn, count,
                         reinterpret_cast<const uint64_t*>(base + masks_at),
                         reinterpret_cast<const LogitAdjustment*>(base + adjustments_at),
                         base + scratch_at, on_device),
        "Sample"));
    RETURN_IF_ERROR(device_->Download(on_device, picked.data(), picked.size() * sizeof(picked[0])));
  }
  tokens->assign(rows.size(), -1);
  if (margins != nullptr) margins->assign(rows.size(), 0);
  for (int64_t i = 0; i < count; ++i) {
    (*tokens)[picks.places[i]] = picked[i].token;
    if (margins != nullptr) (*margins)[picks.places[i]] = picked[i].margin;
  }
  std::vector<SamplingRow> others;
  std::vector<size_t> other_places;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (*(*tokens)[i] >= 0) continue;
    others.push_back(rows[i]);
    other_places.push_back(i);
  }
  std::vector<absl::StatusOr<int32_t>> on_host;
  std::vector<float> others_margins;
  RETURN_IF_ERROR(
      Backend::Sample(logits, others, &on_host, margins != nullptr ? &others_margins : nullptr));
  for (size_t i = 0; i < others.size(); ++i) {
    (*tokens)[other_places[i]] = std::move(on_host[i]);
    if (margins != nullptr) (*margins)[other_places[i]] = others_margins[i];
  }
  return absl::OkStatus();
}

}  // namespace lm
