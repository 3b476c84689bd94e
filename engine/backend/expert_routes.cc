#include "engine/backend/expert_routes.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "engine/backend/softplus.h"

namespace lm {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

void Softmax(absl::Span<float> values) {
  const float max = *std::max_element(values.begin(), values.end());
  float sum = 0;
  for (float& value : values) sum += value = std::exp(value - max);
  for (float& value : values) value /= sum;
}

float Gate(RouterGate gate, float logit) {
  switch (gate) {
    case RouterGate::kSigmoid:
      return 1.0f / (1.0f + std::exp(-logit));
    case RouterGate::kSqrtSoftplus:
      return std::sqrt(Softplus(logit));
    default:
      return logit;
  }
}

// Closes all groups but the best: their experts' scores become -infinity.
void CloseGroups(const Router& router, std::vector<float>* scores) {
  const int64_t size = static_cast<int64_t>(scores->size()) / router.groups;
  std::vector<std::pair<float, int64_t>> groups;
  for (int64_t g = 0; g < router.groups; ++g) {
    float best = kMinusInfinity, second = kMinusInfinity;
    for (int64_t i = g * size; i < (g + 1) * size; ++i) {
      second = std::max(second, std::min(best, (*scores)[i]));
      best = std::max(best, (*scores)[i]);
    }
    groups.emplace_back(-(size > 1 ? best + second : best), g);
  }
  std::sort(groups.begin(), groups.end());
  for (size_t i = router.chosen_groups; i < groups.size(); ++i) {
    std::fill_n(scores->begin() + groups[i].second * size, size, kMinusInfinity);
  }
}

// The experts of one row, the best first, and their weights.
class RowRouter {
 public:
  RowRouter(const Router& router, int64_t experts) : router_(router), order_(experts) {}

  void Route(const float* logits, int64_t row_number, int32_t* chosen, float* weights) {
    const size_t experts = order_.size();
    values_.assign(logits, logits + experts);
    if (std::any_of(values_.begin(), values_.end(), [](float x) { return std::isnan(x); })) {
      std::iota(chosen, chosen + router_.chosen, 0);
      std::fill_n(weights, router_.chosen, std::numeric_limits<float>::quiet_NaN());
      return;
    }
    if (router_.gate == RouterGate::kSoftmax) Softmax(absl::MakeSpan(values_));
    for (float& value : values_) value = Gate(router_.gate, value);
    if (router_.given.empty()) {
      Choose(chosen);
    } else {
      std::copy_n(router_.given.begin() + row_number * router_.chosen, router_.chosen, chosen);
    }
    const absl::Span<float> row(weights, router_.chosen);
    for (int32_t j = 0; j < router_.chosen; ++j) row[j] = values_[chosen[j]];
    if (router_.gate == RouterGate::kSoftmaxOfChosen) Softmax(row);
    if (router_.normalised) {
      constexpr float kLeast = 1.0f / (1 << 14);
      const float sum = std::accumulate(row.begin(), row.end(), 0.0f);
      for (float& weight : row) weight /= std::max(sum, kLeast);
    }
    for (int32_t j = 0; j < router_.chosen; ++j) {
      row[j] *= router_.scale;
      if (!router_.scales.empty()) row[j] *= router_.scales.row<float>(0)[chosen[j]];
    }
  }

 private:
  void Choose(int32_t* chosen) {
    scores_ = values_;
    if (!router_.bias.empty()) {
      const float* bias = router_.bias.row<float>(0);
      for (size_t e = 0; e < scores_.size(); ++e) scores_[e] += bias[e];
    }
    if (router_.groups > 1) CloseGroups(router_, &scores_);
    std::iota(order_.begin(), order_.end(), 0);
    std::partial_sort(order_.begin(), order_.begin() + router_.chosen, order_.end(),
                      [this](int32_t a, int32_t b) {
                        return scores_[a] != scores_[b] ? scores_[a] > scores_[b] : a < b;
                      });
    std::copy_n(order_.begin(), router_.chosen, chosen);
  }

  const Router& router_;
  std::vector<float> values_, scores_;
  std::vector<int32_t> order_;
};

}  // namespace

void ExpertRoutes::Place(int64_t rows_routed, int64_t of_experts, int32_t each) {
  num_rows = rows_routed;
  experts = static_cast<int32_t>(of_experts);
  chosen = each;
  begin = static_cast<int32_t*>(memory.data());
  rows = begin + experts + 1;
  slots = rows + num_slots();
  static_assert(sizeof(float) == sizeof(int32_t));
  weights = reinterpret_cast<float*>(slots + num_slots());
}

void RouteRows(const float* logits, int64_t stride, const Router& router, ExpertRoutes* routes) {
  const int64_t experts = routes->experts, chosen = router.chosen, slots = routes->num_slots();
  RowRouter row_router(router, experts);
  for (int64_t t = 0; t < routes->num_rows; ++t) {
    row_router.Route(logits + t * stride, t, &routes->slots[t * chosen],
                     &routes->weights[t * chosen]);
  }
  // What are experts' numbers in `slots` become their slots.
  std::fill_n(routes->begin, experts + 1, 0);
  for (int64_t i = 0; i < slots; ++i) ++routes->begin[routes->slots[i] + 1];
  std::partial_sum(routes->begin, routes->begin + experts + 1, routes->begin);
  std::vector<int32_t> next(routes->begin, routes->begin + experts);
  for (int64_t i = 0; i < slots; ++i) {
    const int32_t slot = next[routes->slots[i]]++;
    routes->rows[slot] = static_cast<int32_t>(i / chosen);
    routes->slots[i] = slot;
  }
}

}  // namespace lm
