// Tokens that are the greatest logit are picked on the device, and only their numbers come back;
// rows with other options are brought to the host, and so are those that have a logit which is no
// number, for an error that names it.
#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/backend/cuda/cuda_ops.h"
#include "engine/base/status_macros.h"

namespace lm {
namespace {

// Each logit is compared with all of them.
constexpr size_t kMostBiases = 8;

// The biased logits must not leave what the host bounds them to.
constexpr double kGreatestBias = 1e290;

bool IsGreedy(const SamplingOptions& options) {
  const auto& biases = options.logit_bias;
  return options.temperature == 0 && options.repeat_penalty == 1 && biases.size() <= kMostBiases &&
         std::all_of(biases.begin(), biases.end(), [](const std::pair<int32_t, double>& bias) {
           return std::abs(bias.second) < kGreatestBias;
         });
}

size_t Aligned(size_t bytes) { return (bytes + 15) / 16 * 16; }

}  // namespace

absl::Status CudaBackend::Sample(Tensor logits, absl::Span<const SamplingRow> rows,
                                 std::vector<absl::StatusOr<int32_t>>* tokens,
                                 std::vector<float>* margins) {
  std::vector<cuda::GreedyRow> greedy;
  std::vector<size_t> places;  // of these among the rows
  std::vector<uint64_t> masks;
  absl::Span<const uint64_t> last_mask;
  std::vector<cuda::TokenBias> biases;
  for (size_t i = 0; i < rows.size(); ++i) {
    const SamplingOptions& options = rows[i].options;
    if (!IsGreedy(options)) continue;
    const absl::Span<const uint64_t> allowed = rows[i].allowed;
    int32_t mask = -1;
    if (!allowed.empty() && !greedy.empty() && allowed.data() == last_mask.data()) {
      mask = greedy.back().mask;  // rows without a constraint have the model's in common
    } else if (!allowed.empty()) {
      mask = static_cast<int32_t>(masks.size());
      masks.insert(masks.end(), allowed.begin(), allowed.end());
    }
    last_mask = allowed;
    greedy.push_back({rows[i].row, mask, static_cast<int32_t>(biases.size()),
                      static_cast<int32_t>(options.logit_bias.size())});
    for (const auto& [token, bias] : options.logit_bias) biases.push_back({bias, token, 0});
    places.push_back(i);
  }
  std::vector<cuda::PickedToken> picked(greedy.size());
  if (!greedy.empty()) {
    RETURN_IF_ERROR(device_->Begin());
    const size_t greedy_bytes = greedy.size() * sizeof(greedy[0]);
    const size_t mask_bytes = masks.size() * sizeof(masks[0]);
    const size_t bias_bytes = biases.size() * sizeof(biases[0]);
    const size_t tokens_at = Aligned(greedy_bytes), scratch_at = tokens_at + Aligned(greedy_bytes);
    const size_t biases_at = scratch_at + cuda::PickBytes(greedy.size(), logits.cols);
    const size_t masks_at = biases_at + bias_bytes;
    ASSIGN_OR_RETURN(void* memory, picks_.Reserve(device_.get(), masks_at + mask_bytes));
    char* const base = static_cast<char*>(memory);
    RETURN_IF_ERROR(device_->Stage(greedy.data(), base, greedy_bytes));
    RETURN_IF_ERROR(device_->Stage(biases.data(), base + biases_at, bias_bytes));
    RETURN_IF_ERROR(device_->Stage(masks.data(), base + masks_at, mask_bytes));
    auto* const on_device = reinterpret_cast<cuda::PickedToken*>(base + tokens_at);
    RETURN_IF_ERROR(device_->Check(
        cuda::PickGreatest(device_->queue(), ToMatrix(logits),
                           reinterpret_cast<const cuda::GreedyRow*>(base), greedy.size(),
                           reinterpret_cast<const uint64_t*>(base + masks_at),
                           reinterpret_cast<const cuda::TokenBias*>(base + biases_at),
                           base + scratch_at, on_device),
        "Sample"));
    RETURN_IF_ERROR(device_->Download(on_device, picked.data(), picked.size() * sizeof(picked[0])));
  }
  std::vector<SamplingRow> others;
  std::vector<size_t> other_places;
  tokens->assign(rows.size(), 0);
  if (margins != nullptr) margins->assign(rows.size(), 0);
  for (size_t i = 0, next = 0; i < rows.size(); ++i) {
    const bool on_device = next < places.size() && places[next] == i;
    if (on_device && picked[next].token >= 0) {
      (*tokens)[i] = picked[next].token;
      if (margins != nullptr) (*margins)[i] = picked[next].margin;
    } else {
      others.push_back(rows[i]);
      other_places.push_back(i);
    }
    if (on_device) ++next;
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
