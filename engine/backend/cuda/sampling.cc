// Tokens are picked on the device, and only their numbers come back. To the host come rows that
// have a logit which is no number, for an error that names it, more than kMostAdjustments adjusted
// tokens, more than kMostSampledTokens columns, or an order of which SampleRows would have to list
// too much.
#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/backend/cuda/cuda_ops.h"
#include "engine/backend/cuda/table_bytes.h"
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

// Puts rows, masks and adjustments behind one another, the last ones last, whose number changes the
// most; where the last two begin.
std::pair<size_t, size_t> PackPicks(const Picks& picks, std::vector<char>* packed) {
  packed->clear();
  auto append = [packed](absl::Span<const char> bytes) {
    const size_t begin = packed->size();
    packed->resize(Aligned(begin + bytes.size()));
    std::copy(bytes.begin(), bytes.end(), packed->begin() + begin);
    return begin;
  };
  append(BytesOf(picks.rows));
  const size_t masks_at = append(BytesOf(picks.masks));
  return {masks_at, append(BytesOf(picks.adjustments))};
}

}  // namespace

absl::Status CudaBackend::BeginSample(Tensor logits, absl::Span<const SamplingRow> rows) {
  Picks picks;
  if (logits.cols <= cuda::kMostSampledTokens) picks = FindPicks(rows);
  picked_.logits = logits;
  picked_.rows.assign(rows.begin(), rows.end());
  picked_.places.assign(rows.size(), -1);
  const auto count = static_cast<int64_t>(picks.rows.size());
  for (int64_t i = 0; i < count; ++i) picked_.places[picks.places[i]] = static_cast<int32_t>(i);
  if (count == 0) return device_->BeginDownload(nullptr, nullptr, 0);
  RETURN_IF_ERROR(device_->Begin());
  // In one piece: scratch memory, and behind it what is uploaded.
  const size_t scratch_bytes = Aligned(cuda::SampleBytes(picks.num_drawn, count, logits.cols));
  const auto [masks_at, adjustments_at] = PackPicks(picks, &picked_.packed);
  ASSIGN_OR_RETURN(void* memory,
                   picks_.Reserve(device_.get(), scratch_bytes + picked_.packed.size()));
  char* const rows_at = static_cast<char*>(memory) + scratch_bytes;
  RETURN_IF_ERROR(device_->Stage(picked_.packed.data(), rows_at, picked_.packed.size()));
  const size_t bytes = count * sizeof(cuda::PickedToken);
  ASSIGN_OR_RETURN(void* picked, picked_.memory.Reserve(device_.get(), bytes));
  if (picked_.brought.bytes() < bytes) {
    picked_.brought = Buffer();
    ASSIGN_OR_RETURN(picked_.brought, device_->AllocatePinned(bytes));
    std::memset(picked_.brought.data(), 0, bytes);  // what a rehearsal picks
  }
  RETURN_IF_ERROR(device_->Check(
      cuda::SampleRows(device_->queue(), ToMatrix(logits),
                       reinterpret_cast<const cuda::SampledRow*>(rows_at), picks.num_drawn, count,
                       reinterpret_cast<const uint64_t*>(rows_at + masks_at),
                       reinterpret_cast<const LogitAdjustment*>(rows_at + adjustments_at), memory,
                       static_cast<cuda::PickedToken*>(picked)),
      "Sample"));
  return device_->BeginDownload(picked, picked_.brought.data(), bytes);
}

absl::Status CudaBackend::EndSample(std::vector<absl::StatusOr<int32_t>>* tokens,
                                    std::vector<float>* margins, std::vector<bool>* late) {
  const std::vector<SamplingRow>& rows = picked_.rows;
  RETURN_IF_ERROR(device_->AwaitDownload());
  tokens->assign(rows.size(), -1);
  if (margins != nullptr) margins->assign(rows.size(), 0);
  late->assign(rows.size(), false);
  const auto* const brought = static_cast<const cuda::PickedToken*>(picked_.brought.data());
  std::vector<SamplingRow> others;
  std::vector<size_t> other_places;
  for (size_t i = 0; i < rows.size(); ++i) {
    const int32_t place = picked_.places[i];
    if (place >= 0 && brought[place].token >= 0) {
      (*tokens)[i] = brought[place].token;
      if (margins != nullptr) (*margins)[i] = brought[place].margin;
      continue;
    }
    (*late)[i] = true;
    others.push_back(rows[i]);
    other_places.push_back(i);
  }
  if (others.empty()) return absl::OkStatus();
  std::vector<absl::StatusOr<int32_t>> on_host;
  std::vector<float> others_margins;
  RETURN_IF_ERROR(Backend::Sample(picked_.logits, others, &on_host,
                                  margins != nullptr ? &others_margins : nullptr));
  for (size_t i = 0; i < others.size(); ++i) {
    (*tokens)[other_places[i]] = std::move(on_host[i]);
    if (margins != nullptr) (*margins)[other_places[i]] = others_margins[i];
  }
  return absl::OkStatus();
}

absl::Status CudaBackend::Sample(Tensor logits, absl::Span<const SamplingRow> rows,
                                 std::vector<absl::StatusOr<int32_t>>* tokens,
                                 std::vector<float>* margins) {
  RETURN_IF_ERROR(BeginSample(logits, rows));
  std::vector<bool> late;
  return EndSample(tokens, margins, &late);
}

}  // namespace lm
