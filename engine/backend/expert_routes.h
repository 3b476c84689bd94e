// Which experts of a mixture see which rows (Shazeer et al. 2017, arXiv 1701.06538): the products
// that follow are one an expert, over rows that stand side by side.
#ifndef LM_ENGINE_BACKEND_EXPERT_ROUTES_H_
#define LM_ENGINE_BACKEND_EXPERT_ROUTES_H_

#include <cstdint>

#include "absl/types/span.h"
#include "engine/backend/expert_slots.h"
#include "engine/tensor/buffer.h"
#include "engine/tensor/tensor.h"

namespace lm {

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
  Tensor bias = {};    // (1, experts), or empty
  Tensor scales = {};  // likewise
  // (rows, chosen), on the host: the experts of each row, whatever their p; or none.
  absl::Span<const int32_t> given = {};
};

// Slots are numbered by expert, within one by row: those of expert e are [begin[e], begin[e + 1]).
// What the pointers lead to is in the memory of the backend that has routed.
struct ExpertRoutes {
  int32_t experts = 0;
  int32_t chosen = 0;
  int64_t num_rows = 0;
  int32_t* begin = nullptr;  // (experts + 1,)
  int32_t* rows = nullptr;   // (slots,) of each slot
  int32_t* slots = nullptr;  // (rows, chosen), the greatest weight of a row first
  float* weights = nullptr;  // likewise
  // Where a backend makes the products of all experts at once: each expert's slots in groups of at
  // most group_slots, the last groups empty; and of each slot its group * group_slots + its place
  // there.
  int32_t group_slots = 0;
  int64_t num_groups = 0;
  SlotGroup* groups = nullptr;
  int32_t* places = nullptr;  // (slots,)
  Buffer memory;

  int64_t num_slots() const { return num_rows * chosen; }
  // Of the first four.
  static size_t BytesFor(int64_t num_rows, int64_t experts, int64_t chosen) {
    return (experts + 1 + 3 * num_rows * chosen) * sizeof(int32_t);
  }
  // Points them into `memory`, which is as large.
  void Place(int64_t rows_routed, int64_t of_experts, int32_t each);
};

// Routes rows of logits (rows, experts), `stride` values apart. Where one of a row is not a number
// its experts are the first, and their weights not numbers.
// REQUIRES: all of it is in the host's memory; the routes are placed; chosen <= experts; the open
// groups have that many.
void RouteRows(const float* logits, int64_t stride, const Router& router, ExpertRoutes* routes);

}  // namespace lm

#endif  // LM_ENGINE_BACKEND_EXPERT_ROUTES_H_
