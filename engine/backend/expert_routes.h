// Which experts of a mixture see which rows (Shazeer et al. 2017, arXiv 1701.06538), as a value on
// the host: the products that follow are one an expert, over rows that stand side by side.
#ifndef LM_ENGINE_BACKEND_EXPERT_ROUTES_H_
#define LM_ENGINE_BACKEND_EXPERT_ROUTES_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace lm {

// What a router's logits l become.
enum class RouterGate {
  kSoftmax,          // p = softmax(l) over all experts
  kSigmoid,          // p = 1 / (1 + exp(-l))
  kSoftmaxOfChosen,  // chosen by l, then p = softmax over the chosen
  kSqrtSoftplus,     // p = sqrt(log(1 + exp(l)))
};

// The experts of a row are the `chosen` greatest of p + bias, the lower number first where two are
// equal; their weights are p of these. With groups of experts side by side only the chosen_groups
// are open whose two greatest have the greatest sum. Then weights are divided by their sum
// (normalised; at least 2^-14), multiplied by `scale`, and each by its expert's own of `scales`.
struct Router {
  RouterGate gate = RouterGate::kSoftmax;
  int32_t chosen = 1;
  int32_t groups = 1;  // divides the experts
  int32_t chosen_groups = 1;
  bool normalised = false;
  float scale = 1;
  absl::Span<const float> bias = {};    // of each expert, or none
  absl::Span<const float> scales = {};  // likewise
  // (rows, chosen): the experts of each row, whatever their p; or none.
  absl::Span<const int32_t> given = {};
};

// Slots are numbered by expert, within one by row: those of expert e are [begin[e], begin[e + 1]).
struct ExpertRoutes {
  std::vector<int32_t> begin;  // (experts + 1,)
  std::vector<int32_t> rows;   // (slots,) of each slot
  std::vector<int32_t> slots;  // (rows, chosen), the greatest weight of a row first
  std::vector<float> weights;  // likewise
  int32_t chosen = 0;

  int64_t num_slots() const { return static_cast<int64_t>(rows.size()); }
  int64_t num_rows() const { return chosen == 0 ? 0 : num_slots() / chosen; }
};

// Routes rows of logits (rows, experts), `stride` values apart. Where one of a row is not a number
// its experts are the first, and their weights not numbers.
// REQUIRES: chosen <= experts; the open groups have that many.
void RouteRows(const float* logits, int64_t stride, int64_t rows, int64_t experts,
               const Router& router, ExpertRoutes* routes);

}  // namespace lm

#endif  // LM_ENGINE_BACKEND_EXPERT_ROUTES_H_
