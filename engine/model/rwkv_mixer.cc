// RWKV-7 (Peng et al. 2025, arXiv 2503.14456). Of normed rows n, m being the one before n in its
// sequence (zeros before the first), each of r, w, k, v, a, g sees n + mu (m - n), mu its own:
//   r, k, v = W_r n, W_k n, W_v n
//   w       = -exp(-1/2) sigmoid(w_0 + W_2 tanh(W_1 n)),  a = sigmoid(a_0 + A_2 A_1 n)
//   v       = v + sigmoid(v_0 + V_2 V_1 n) (v of the first layer - v)
//   e       = each head of k * k_k scaled to length 1;  k = k + k_a (a k - k)
//   y       = StateRule::kErase of r, k, v, with the logarithms of decays w, keys e and rates a
//   out     = ([each head of y normed] + (r . (k * r_k)) v)  [* G_2 sigmoid(G_1 n)],
// the dot product being each head's. The feed-forward's first product sees such a mixture, too.
//
// RWKV-6 (2024, arXiv 2404.05892) makes each mu of the row, mu = mu_0 + M_2 tanh(M_1 (n + mu_x (m -
// n))), has no rates, no erasing and no first values, and reads the state before it learns:
//   w   = -exp(w_0 + W_2 tanh(W_1 n)),  g = silu(G n)
//   y   = S r + (r . (k * r_k)) v,  S = exp(w) S + k v^T then
//   out = [each head of y normed] * g
// so that what a step's rule is given is the token before: it reads what that has left. The
// feed-forward's result is multiplied by sigmoid(R n) of a mixture of its own.
//
// As gated linear attention (Yang et al. 2023, arXiv 2312.06635; QRWKV6: Goldstein et al. 2025,
// arXiv 2505.03005) it reads what it has learnt, keys and values may be several heads', and
//   k   = (1 - exp(w)) k,  g = sigmoid(G n)
//   S   = exp(w) S + k v^T,  out = (S r / sqrt(head_dim)) * g
#include <cmath>
#include <utility>

#include "engine/base/status_macros.h"
#include "engine/model/column_taker.h"
#include "engine/model/mixers.h"

namespace lm {
namespace {

constexpr float kMostDecay = 0.606531f;  // exp(-1/2)

// mixed = n + mu (m - n), `difference` being m - n
absl::Status Mixture(Backend* backend, Tensor n, Tensor difference, const DeviceNorm& shift,
                     Tensor mixed) {
  RETURN_IF_ERROR(backend->Normalize(difference, shift.norm, mixed));
  return backend->Add(mixed, n, /*scale=*/1);
}

absl::Status TakeDifference(Backend* backend, Tensor n, const DeviceVector& previous,
                            const StateLayer& state, Tensor difference) {
  RETURN_IF_ERROR(
      backend->CausalConv(n, previous.tensor, {}, Activation::kIdentity, state, difference));
  return backend->Add(difference, n, /*scale=*/-1);
}

// The state that is `values` behind the layer's.
StateLayer Behind(StateLayer state, int64_t values) {
  state.data += values;
  return state;
}

// What one token's time mixing is made of: (T, inner) each, but for `low`.
struct Parts {
  Tensor n, difference, mixed, r, w, k, v, a, g, erase, other, low, of_mixtures;
};

Parts PartsOf(const LayerRun& run, const RwkvSpec& spec) {
  Parts parts;
  ColumnTaker take(run.act.rwkv.Rows(0, run.rows));
  for (Tensor* part : {&parts.n, &parts.difference, &parts.mixed, &parts.r, &parts.w, &parts.k,
                       &parts.v, &parts.a, &parts.g, &parts.erase, &parts.other}) {
    *part = take(spec.inner());
  }
  parts.low = take(std::max(spec.widest_rank(), spec.heads));
  parts.of_mixtures = take(5 * spec.mix_rank);
  return parts;
}

// The products of the mixtures; w, a and g as they are used.
absl::Status MakeParts(const LayerRun& run, const RwkvSpec& spec, const Parts& parts) {
  Backend* const backend = run.backend;
  const RwkvWeights& weights = run.mixer.rwkv;
  auto mix = [&](const DeviceNorm& shift) {
    return Mixture(backend, parts.n, parts.difference, shift, parts.mixed);
  };
  auto apply = [&](const Projection& projection, Tensor from, Tensor to) {
    return run.Apply(projection, ProductInput::Plain(from), ProductResult::kReplaces, to);
  };
  auto sigmoid = [&](Tensor x) { return backend->GatedActivation(Activation::kSigmoid, x, {}, x); };
  RETURN_IF_ERROR(mix(weights.r_shift));
  RETURN_IF_ERROR(apply(weights.r, parts.mixed, parts.r));

  RETURN_IF_ERROR(mix(weights.w_shift));
  Tensor low = parts.low.Cols(0, spec.decay_rank);
  RETURN_IF_ERROR(apply(weights.w_1, parts.mixed, low));
  RETURN_IF_ERROR(backend->ScaleAndCap(low, /*scale=*/1, /*cap=*/1));
  RETURN_IF_ERROR(apply(weights.w_2, low, parts.w));
  RETURN_IF_ERROR(sigmoid(parts.w));
  RETURN_IF_ERROR(backend->ScaleAndCap(parts.w, -kMostDecay, /*cap=*/0));

  RETURN_IF_ERROR(mix(weights.k_shift));
  RETURN_IF_ERROR(apply(weights.k, parts.mixed, parts.k));

  RETURN_IF_ERROR(mix(weights.v_shift));
  RETURN_IF_ERROR(apply(weights.v, parts.mixed, parts.v));
  const Tensor first = run.act.rwkv_first.Rows(0, run.rows);
  if (spec.first) {
    RETURN_IF_ERROR(CopyRows(backend, parts.v, first));
  } else {
    low = parts.low.Cols(0, spec.value_rank);
    RETURN_IF_ERROR(apply(weights.v_1, parts.mixed, low));
    RETURN_IF_ERROR(apply(weights.v_2, low, parts.other));
    RETURN_IF_ERROR(CopyRows(backend, first, parts.g));  // which is not made yet
    RETURN_IF_ERROR(backend->Add(parts.g, parts.v, /*scale=*/-1));
    RETURN_IF_ERROR(
        backend->GatedActivation(Activation::kSigmoid, parts.other, parts.g, parts.other));
    RETURN_IF_ERROR(backend->Add(parts.v, parts.other, /*scale=*/1));
  }

  RETURN_IF_ERROR(mix(weights.a_shift));
  low = parts.low.Cols(0, spec.rate_rank);
  RETURN_IF_ERROR(apply(weights.a_1, parts.mixed, low));
  RETURN_IF_ERROR(apply(weights.a_2, low, parts.a));
  RETURN_IF_ERROR(sigmoid(parts.a));
  if (spec.gate_rank == 0) return absl::OkStatus();

  RETURN_IF_ERROR(mix(weights.g_shift));
  low = parts.low.Cols(0, spec.gate_rank);
  RETURN_IF_ERROR(apply(weights.g_1, parts.mixed, low));
  RETURN_IF_ERROR(sigmoid(low));
  return apply(weights.g_2, low, parts.g);
}

// The same of RWKV-6.
absl::Status MakeParts6(const LayerRun& run, const RwkvSpec& spec, const Parts& parts) {
  Backend* const backend = run.backend;
  const RwkvWeights& weights = run.mixer.rwkv;
  auto apply = [&](const Projection& projection, Tensor from, Tensor to) {
    return run.Apply(projection, ProductInput::Plain(from), ProductResult::kReplaces, to);
  };
  RETURN_IF_ERROR(Mixture(backend, parts.n, parts.difference, weights.x_shift, parts.mixed));
  RETURN_IF_ERROR(apply(weights.mix_1, parts.mixed, parts.of_mixtures));
  RETURN_IF_ERROR(backend->ScaleAndCap(parts.of_mixtures, /*scale=*/1, /*cap=*/1));
  const Tensor decay = parts.low.Cols(0, spec.decay_rank);
  const bool shared = spec.kv_cols() < spec.inner();  // several heads have the same
  const Tensor keys = (shared ? parts.a : parts.k).Cols(0, spec.kv_cols());
  const Tensor values = (shared ? parts.erase : parts.v).Cols(0, spec.kv_cols());
  const std::pair<const Projection*, Tensor> made[] = {{&weights.w_1, decay},
                                                       {&weights.k, keys},
                                                       {&weights.v, values},
                                                       {&weights.r, parts.r},
                                                       {&weights.g, parts.g}};
  for (int i = 0; i < 5; ++i) {
    const Tensor low = parts.of_mixtures.Cols(i * spec.mix_rank, spec.mix_rank);
    RETURN_IF_ERROR(apply(weights.mix_2[i], low, parts.other));
    RETURN_IF_ERROR(backend->GatedActivation(Activation::kIdentity, parts.other, parts.difference,
                                             parts.mixed));
    RETURN_IF_ERROR(backend->Add(parts.mixed, parts.n, /*scale=*/1));
    RETURN_IF_ERROR(apply(*made[i].first, parts.mixed, made[i].second));
  }
  for (int64_t h = 0; h < spec.heads && shared; ++h) {
    const int64_t from = h / (spec.heads / spec.linear_kv_heads) * spec.head_dim;
    const int64_t to = h * spec.head_dim;
    RETURN_IF_ERROR(
        CopyRows(backend, keys.Cols(from, spec.head_dim), parts.k.Cols(to, spec.head_dim)));
    RETURN_IF_ERROR(
        CopyRows(backend, values.Cols(from, spec.head_dim), parts.v.Cols(to, spec.head_dim)));
  }
  RETURN_IF_ERROR(backend->ScaleAndCap(decay, /*scale=*/1, /*cap=*/1));
  RETURN_IF_ERROR(apply(weights.w_2, decay, parts.w));
  RETURN_IF_ERROR(backend->GatedActivation(Activation::kExp, parts.w, {}, parts.w));
  return backend->ScaleAndCap(parts.w, /*scale=*/-1, /*cap=*/0);
}

// What the state learns of the rows, and is read at: r, k, v, w and what they erase.
absl::Status Learn(const LayerRun& run, const RwkvSpec& spec, const Parts& parts, Tensor beta,
                   const StateLayer& rule, Tensor out) {
  return run.backend->DeltaRule({.q = parts.r,
                                 .k = parts.k,
                                 .v = parts.v,
                                 .beta = beta,
                                 .log_decay = parts.w,
                                 .erase = parts.erase,
                                 .heads = static_cast<int32_t>(spec.heads),
                                 .key_heads = static_cast<int32_t>(spec.heads),
                                 .rule = StateRule::kErase},
                                rule, out);
}

absl::StatusOr<Tensor> ApplyLinear(const LayerRun& run, const RwkvSpec& spec, const Parts& parts,
                                   const StateLayer& rule) {
  Backend* const backend = run.backend;
  RETURN_IF_ERROR(MakeParts6(run, spec, parts));
  RETURN_IF_ERROR(backend->GatedActivation(Activation::kExp, parts.w, parts.k, parts.other));
  RETURN_IF_ERROR(backend->Add(parts.k, parts.other, /*scale=*/-1));
  const float scale = 1 / std::sqrt(static_cast<float>(spec.head_dim));
  RETURN_IF_ERROR(backend->ScaleAndCap(parts.r, scale, /*cap=*/0));
  RETURN_IF_ERROR(backend->Normalize(parts.n, run.mixer.rwkv.nothing.norm, parts.erase));
  const Tensor out = run.Of(run.act.mixed, spec.inner());
  RETURN_IF_ERROR(Learn(run, spec, parts, parts.erase, rule, out));
  RETURN_IF_ERROR(backend->GatedActivation(Activation::kSigmoid, parts.g, out, out));
  return out;
}

absl::StatusOr<Tensor> ApplyRwkv6(const LayerRun& run, const RwkvSpec& spec, const Parts& parts,
                                  const StateLayer& shift, const StateLayer& rule) {
  Backend* const backend = run.backend;
  const RwkvWeights& weights = run.mixer.rwkv;
  RETURN_IF_ERROR(MakeParts6(run, spec, parts));
  const Tensor decay = parts.mixed, key = parts.difference, value = parts.a;
  int64_t behind = 2 * spec.inner();
  for (const auto& [now, before] :
       {std::pair(parts.w, decay), std::pair(parts.k, key), std::pair(parts.v, value)}) {
    RETURN_IF_ERROR(backend->CausalConv(now, weights.previous.tensor, {}, Activation::kIdentity,
                                        Behind(shift, behind), before));
    behind += spec.inner();
  }
  RETURN_IF_ERROR(backend->Normalize(parts.n, weights.nothing.norm, parts.erase));
  const Tensor out = run.Of(run.act.mixed, spec.inner());
  RETURN_IF_ERROR(backend->DeltaRule({.q = parts.r,
                                      .k = key,
                                      .v = value,
                                      .beta = parts.erase,
                                      .log_decay = decay,
                                      .erase = parts.erase,
                                      .heads = static_cast<int32_t>(spec.heads),
                                      .key_heads = static_cast<int32_t>(spec.heads),
                                      .rule = StateRule::kErase},
                                     rule, out));
  const Tensor bonus = parts.low.Cols(0, spec.heads);
  RETURN_IF_ERROR(backend->Normalize(parts.k, weights.bonus_gain.norm, parts.other));
  RETURN_IF_ERROR(backend->Dot(parts.other, parts.r, bonus));
  RETURN_IF_ERROR(backend->ScaleGroups(parts.v, bonus, Activation::kIdentity));
  RETURN_IF_ERROR(backend->Add(out, parts.v, /*scale=*/1));
  RETURN_IF_ERROR(backend->Normalize(out, weights.output_norm.norm, out));
  RETURN_IF_ERROR(backend->GatedActivation(Activation::kSilu, parts.g, out, out));
  return out;
}

}  // namespace

absl::StatusOr<Tensor> ApplyRwkv(const LayerRun& run, const RwkvSpec& spec, const StateLayer& shift,
                                 const StateLayer& rule) {
  Backend* const backend = run.backend;
  const RwkvWeights& weights = run.mixer.rwkv;
  const Parts parts = PartsOf(run, spec);
  RETURN_IF_ERROR(backend->Normalize(run.x(), run.weights.mixer_norm.norm, parts.n));
  RETURN_IF_ERROR(TakeDifference(backend, parts.n, weights.previous, shift, parts.difference));
  if (spec.is_linear()) return ApplyLinear(run, spec, parts, rule);
  if (spec.is_6()) return ApplyRwkv6(run, spec, parts, shift, rule);
  RETURN_IF_ERROR(MakeParts(run, spec, parts));

  RETURN_IF_ERROR(backend->Normalize(parts.k, weights.erase_gain.norm, parts.erase));
  // Of length 1, unless it is zeros.
  const float eps = 1e-24f / static_cast<float>(spec.head_dim);
  RETURN_IF_ERROR(backend->RmsNorm(parts.erase, weights.unit.tensor, eps, parts.erase));
  const Tensor scaled = parts.mixed, change = parts.other;
  RETURN_IF_ERROR(backend->Normalize(parts.k, weights.rate_gain.norm, scaled));
  RETURN_IF_ERROR(backend->GatedActivation(Activation::kIdentity, parts.a, scaled, change));
  RETURN_IF_ERROR(backend->Add(change, scaled, /*scale=*/-1));
  RETURN_IF_ERROR(backend->Add(parts.k, change, /*scale=*/1));

  const Tensor out = run.Of(run.act.mixed, spec.inner());
  RETURN_IF_ERROR(Learn(run, spec, parts, parts.a, rule, out));
  if (!weights.output_norm.empty()) {
    RETURN_IF_ERROR(backend->Normalize(out, weights.output_norm.norm, out));
  }
  const Tensor bonus = parts.low.Cols(0, spec.heads);
  RETURN_IF_ERROR(backend->Normalize(parts.k, weights.bonus_gain.norm, scaled));
  RETURN_IF_ERROR(backend->Dot(scaled, parts.r, bonus));
  RETURN_IF_ERROR(backend->ScaleGroups(parts.v, bonus, Activation::kIdentity));
  RETURN_IF_ERROR(backend->Add(out, parts.v, /*scale=*/1));
  if (spec.gate_rank > 0) {
    RETURN_IF_ERROR(backend->GatedActivation(Activation::kIdentity, parts.g, out, out));
  }
  return out;
}

absl::StatusOr<Tensor> MixForFeedForward(const LayerRun& run, const RwkvSpec& spec,
                                         const StateLayer& shift) {
  const FeedForwardWeights& weights = run.weights.feed_forward;
  const Parts parts = PartsOf(run, spec);
  RETURN_IF_ERROR(run.backend->Normalize(run.x(), run.weights.feed_forward_norm.norm, parts.n));
  RETURN_IF_ERROR(TakeDifference(run.backend, parts.n, weights.previous,
                                 Behind(shift, spec.inner()), parts.difference));
  RETURN_IF_ERROR(Mixture(run.backend, parts.n, parts.difference, weights.shift, parts.mixed));
  return parts.mixed;
}

absl::Status AddGated(const LayerRun& run, const RwkvSpec& spec, const ProductInput& between) {
  const FeedForwardWeights& weights = run.weights.feed_forward;
  Backend* const backend = run.backend;
  const Parts parts = PartsOf(run, spec);  // with MixForFeedForward's n and difference
  RETURN_IF_ERROR(Mixture(backend, parts.n, parts.difference, weights.gate_shift, parts.mixed));
  RETURN_IF_ERROR(run.Apply(weights.output_gate, ProductInput::Plain(parts.mixed),
                            ProductResult::kReplaces, parts.r));
  RETURN_IF_ERROR(run.Apply(weights.down, between, ProductResult::kReplaces, parts.other));
  RETURN_IF_ERROR(
      backend->GatedActivation(Activation::kSigmoid, parts.r, parts.other, parts.other));
  return backend->Add(run.x(), parts.other, /*scale=*/1);
}

}  // namespace lm
