#include "engine/model/feed_forward.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "engine/base/status_macros.h"
#include "engine/model/mixers.h"

namespace lm {
namespace {

// What goes into a feed-forward's last product. Where there is a limit the gate is active already.
ProductInput Active(const FeedForwardSpec& spec, Tensor between, float limit) {
  if (!spec.gated) return ProductInput::Activated(between, spec.activation);
  return ProductInput::Gated(between, limit > 0 ? Activation::kIdentity : spec.activation);
}

// Keeps what the gate becomes below the limit, and what it is for within it.
absl::Status Limit(const FeedForwardSpec& spec, Tensor between, float limit, Backend* backend) {
  if (limit == 0) return absl::OkStatus();
  const int64_t width = between.cols / 2;
  const Tensor gate = between.Cols(0, width), up = between.Cols(width, width);
  auto clamp = [&] { return backend->Clamp(gate, -std::numeric_limits<float>::infinity(), limit); };
  if (spec.limits_before) RETURN_IF_ERROR(clamp());
  RETURN_IF_ERROR(backend->GatedActivation(spec.activation, gate, {}, gate));
  if (!spec.limits_before) RETURN_IF_ERROR(clamp());
  return backend->Clamp(up, -limit, limit);
}

// gate = max(gate - (mean + sparsity standard deviations), 0), of each row.
absl::Status Cut(const LayerRun& run, Tensor gate) {
  const FeedForwardWeights& weights = run.weights.feed_forward;
  Backend* const backend = run.backend;
  const Tensor scratch = run.Of(run.act.sparse, gate.cols);
  const Tensor spread = run.act.row_factor.Rows(0, run.rows);
  RETURN_IF_ERROR(backend->Normalize(gate, weights.spread.norm, scratch));
  RETURN_IF_ERROR(backend->Dot(scratch, gate, spread));
  RETURN_IF_ERROR(backend->Normalize(gate, weights.cut.norm, gate));
  RETURN_IF_ERROR(backend->GatedActivation(Activation::kRelu, gate, {}, gate));
  return backend->ScaleGroups(gate, spread, Activation::kIdentity);
}

// Multiplies each slot's row by its weight, which is 1 from then on.
absl::Status WeighInputs(const LayerRun& run, Tensor of_slots) {
  const Tensor column(run.act.slot_factors.data, DType::kF32, of_slots.rows, 1);
  RETURN_IF_ERROR(run.backend->MoveWeights(&run.act.routes, column));
  return run.backend->ScaleGroups(of_slots, column, Activation::kIdentity);
}

// Adds what the rows' adapters add to one product of each expert; x and y are of all slots. Which
// rows those are is asked of the backend: on a device this waits.
absl::Status AddExpertUpdates(const LayerRun& run, Projection FeedForwardWeights::*product,
                              const ProductInput& x, Tensor y) {
  const std::vector<FeedForwardWeights>& experts = run.weights.experts.experts;
  const bool updated = std::any_of(experts.begin(), experts.end(), [&](const auto& expert) {
    return !(expert.*product).updates().empty();
  });
  if (run.adapted.empty() || !updated) return absl::OkStatus();
  const ExpertRoutes& routes = run.act.routes;
  std::vector<int32_t> begins(routes.experts + 1), rows(routes.num_slots());
  // As a rehearsal, which brings nothing, leaves them: the last one has as much as one can have.
  begins.back() = static_cast<int32_t>(run.rows);
  RETURN_IF_ERROR(
      run.backend->Download(routes.begin, begins.data(), begins.size() * sizeof(begins[0])));
  RETURN_IF_ERROR(run.backend->Download(routes.rows, rows.data(), rows.size() * sizeof(rows[0])));
  for (size_t e = 0; e < experts.size(); ++e) {
    const absl::Span<const LowRankUpdate> updates = (experts[e].*product).updates();
    const int64_t begin = begins[e], count = begins[e + 1] - begin;
    if (updates.empty() || count == 0) continue;
    ProductInput own = x;
    own.x = x.x.Rows(begin, count);
    RETURN_IF_ERROR(AddUpdates(
        updates, AdaptedAmong(run.adapted, absl::MakeConstSpan(rows).subspan(begin, count)), own,
        run.act.low_rank, run.backend, y.Rows(begin, count)));
  }
  return absl::OkStatus();
}

// What the experts make of x, in act.hidden: those of every row first one expert's rows after the
// other's, each with one product for all of them.
absl::StatusOr<Tensor> MixExperts(const LayerRun& run) {
  Backend* const backend = run.backend;
  Activations& act = run.act;
  const FeedForwardSpec& spec = run.spec.feed_forward;
  const ExpertSpec& own = *spec.experts;
  const ExpertWeights& experts = run.weights.experts;
  ExpertRoutes& routes = act.routes;
  const int64_t rows = run.rows;
  const Tensor out = act.hidden.Rows(0, rows);
  const bool beside = spec.beside;
  const DeviceNorm& norm = beside ? experts.router_norm : run.weights.feed_forward_norm;
  const Tensor n = norm.empty() ? run.x() : act.normed.Rows(0, rows);
  if (!norm.empty()) RETURN_IF_ERROR(backend->Normalize(run.x(), norm.norm, n));
  const Tensor logits = act.router.Rows(0, rows).Cols(0, own.count);
  RETURN_IF_ERROR(
      run.Apply(experts.router, ProductInput::Plain(n), ProductResult::kReplaces, logits));
  Router router = own.router;
  router.bias = experts.choice_bias.tensor;
  router.scales = experts.scales.tensor;
  std::vector<int32_t> given;
  for (const int32_t token : run.tokens) {
    if (experts.of_tokens.empty()) break;
    const auto begin = experts.of_tokens.begin() + int64_t{token} * router.chosen;
    given.insert(given.end(), begin, begin + router.chosen);
  }
  router.given = given;
  RETURN_IF_ERROR(backend->Route(logits, router, &routes));
  const int64_t slots = routes.num_slots();
  const int64_t cols = own.latent > 0 ? own.latent : run.model.hidden;
  const Tensor of_slots(act.slots.data, DType::kF32, slots, cols);
  const Tensor gate_up(act.slot_gate_up.data, DType::kF32, slots, spec.InputCols(own.width));
  if (beside) RETURN_IF_ERROR(backend->Normalize(run.x(), experts.norm.norm, n));
  Tensor seen = n, sum = out;  // by and of the experts
  if (own.latent > 0) {
    seen = sum = act.shared.Rows(0, rows).Cols(0, cols);
    RETURN_IF_ERROR(
        run.Apply(experts.latent_down, ProductInput::Plain(n), ProductResult::kReplaces, seen));
  }
  RETURN_IF_ERROR(backend->GatherSlots(seen, routes, of_slots));
  if (own.weigh_input) RETURN_IF_ERROR(WeighInputs(run, of_slots));
  const ProductInput input = ProductInput::Plain(of_slots);
  RETURN_IF_ERROR(experts.input.Apply(backend, input, routes, gate_up));
  RETURN_IF_ERROR(AddExpertUpdates(run, &FeedForwardWeights::input, input, gate_up));
  RETURN_IF_ERROR(Limit(spec, gate_up, spec.expert_limit, backend));
  const ProductInput active_slots = Active(spec, gate_up, spec.expert_limit);
  RETURN_IF_ERROR(experts.down.Apply(backend, active_slots, routes, of_slots));
  RETURN_IF_ERROR(AddExpertUpdates(run, &FeedForwardWeights::down, active_slots, of_slots));
  RETURN_IF_ERROR(backend->CombineSlots(of_slots, routes, sum));
  if (own.latent > 0) {
    RETURN_IF_ERROR(
        run.Apply(experts.latent_up, ProductInput::Plain(sum), ProductResult::kReplaces, out));
  }
  if (own.shared_width == 0) return out;

  const Tensor between = act.gate_up.Rows(0, rows).Cols(0, spec.InputCols(own.shared_width));
  RETURN_IF_ERROR(
      run.Apply(experts.shared.input, ProductInput::Plain(n), ProductResult::kReplaces, between));
  RETURN_IF_ERROR(Limit(spec, between, spec.limit, backend));
  const ProductInput active = Active(spec, between, spec.limit);
  if (!own.shared_gate) {
    RETURN_IF_ERROR(run.Apply(experts.shared.down, active, ProductResult::kIsAdded, out));
    return out;
  }
  const Tensor shared = act.shared.Rows(0, rows),
               gate = act.router.Rows(0, rows).Cols(own.count, 1);
  RETURN_IF_ERROR(run.Apply(experts.shared.down, active, ProductResult::kReplaces, shared));
  RETURN_IF_ERROR(
      run.Apply(experts.shared_gate, ProductInput::Plain(n), ProductResult::kReplaces, gate));
  RETURN_IF_ERROR(backend->ScaleGroups(shared, gate, Activation::kSigmoid));
  RETURN_IF_ERROR(backend->Add(out, shared, /*scale=*/1));
  return out;
}

// The first product, of `input`, of the one that is none of the experts, ready for the last.
absl::StatusOr<ProductInput> Expand(const LayerRun& run, const ProductInput& input) {
  const FeedForwardSpec& spec = run.spec.feed_forward;
  const Tensor between = run.Of(run.act.gate_up, spec.InputCols(spec.width));
  RETURN_IF_ERROR(
      run.Apply(run.weights.feed_forward.input, input, ProductResult::kReplaces, between));
  if (spec.sparsity > 0) RETURN_IF_ERROR(Cut(run, between.Cols(0, spec.width)));
  RETURN_IF_ERROR(Limit(spec, between, spec.limit, run.backend));
  return Active(spec, between, spec.limit);
}

// mixed = norm(mixed) + norm(the feed-forward beside the experts)
absl::Status AddBeside(const LayerRun& run, Tensor mixed) {
  const LayerWeights& weights = run.weights;
  const Tensor other = run.act.shared.Rows(0, run.rows);
  RETURN_IF_ERROR(run.backend->Normalize(mixed, weights.experts.post_norm.norm, mixed));
  ASSIGN_OR_RETURN(const ProductInput between,
                   Expand(run, NormedInput(run.x(), weights.feed_forward_norm)));
  RETURN_IF_ERROR(run.Apply(weights.feed_forward.down, between, ProductResult::kReplaces, other));
  RETURN_IF_ERROR(run.backend->Normalize(other, weights.experts.other_post_norm.norm, other));
  return run.backend->Add(mixed, other, /*scale=*/1);
}

}  // namespace

absl::Status FeedForward(const LayerRun& run, const StateLayer& shift) {
  const FeedForwardSpec& spec = run.spec.feed_forward;
  const LayerWeights& weights = run.weights;
  if (spec.experts.has_value()) {
    ASSIGN_OR_RETURN(const Tensor mixed, MixExperts(run));
    if (spec.beside) RETURN_IF_ERROR(AddBeside(run, mixed));
    if (!weights.post_feed_forward_norm.empty()) {
      RETURN_IF_ERROR(run.backend->Normalize(mixed, weights.post_feed_forward_norm.norm, mixed));
    }
    if (run.model.hyper.has_value()) {
      return run.backend->GatedActivation(Activation::kIdentity, mixed, {}, run.x());
    }
    return run.backend->Add(run.x(), mixed, run.spec.residual_scale);
  }
  ProductInput input = NormedInput(run.x(), weights.feed_forward_norm);
  if (run.spec.mixes_feed_forward()) {
    ASSIGN_OR_RETURN(input.x, MixForFeedForward(run, *run.spec.rwkv(), shift));
    input.kind = ProductInput::Kind::kPlain;
  }
  ASSIGN_OR_RETURN(const ProductInput between, Expand(run, input));
  if (run.spec.mixes_feed_forward() && run.spec.rwkv()->is_6()) {
    return AddGated(run, *run.spec.rwkv(), between);
  }
  return AddToResidual(run, weights.feed_forward.down, between, weights.post_feed_forward_norm);
}

}  // namespace lm
