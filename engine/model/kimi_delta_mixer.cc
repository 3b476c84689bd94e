// Kimi Delta Attention (KimiDeltaSpec).
#include "engine/base/status_macros.h"
#include "engine/model/column_taker.h"
#include "engine/model/mixers.h"

namespace lm {

absl::StatusOr<Tensor> ApplyKimiDelta(const LayerRun& run, const KimiDeltaSpec& spec,
                                      const StateLayer& conv, const StateLayer& rule) {
  Backend* const backend = run.backend;
  const KimiDeltaWeights& weights = run.mixer.kimi_delta;
  const int64_t inner = spec.inner();
  ColumnTaker input(run.act.mixer_input.Rows(0, run.rows));
  const Tensor qkv = input(spec.conv_cols());
  Tensor decay = input(spec.gate_input()), gate = input(spec.gate_input());
  const Tensor beta = input(spec.heads);
  const Tensor convolved = run.Of(run.act.mixed, spec.conv_cols());
  RETURN_IF_ERROR(
      backend->CausalConv(qkv, run.mixer.conv.tensor, {}, Activation::kSilu, conv, convolved));
  if (spec.low_rank) {
    // q, k and v before the convolution nobody needs any more.
    ColumnTaker wide(qkv);
    const Tensor low_decay = decay, low_gate = gate;
    decay = wide(inner);
    gate = wide(inner);
    RETURN_IF_ERROR(
        run.Apply(weights.decay, ProductInput::Plain(low_decay), ProductResult::kReplaces, decay));
    RETURN_IF_ERROR(
        run.Apply(weights.gate, ProductInput::Plain(low_gate), ProductResult::kReplaces, gate));
  }
  if (spec.bound == 0) {
    RETURN_IF_ERROR(backend->GatedActivation(Activation::kSoftplus, decay, {}, decay));
    RETURN_IF_ERROR(backend->Normalize(decay, weights.a.norm, decay));
  } else {
    RETURN_IF_ERROR(backend->Normalize(decay, weights.a.norm, decay));
    RETURN_IF_ERROR(backend->GatedActivation(Activation::kSigmoid, decay, {}, decay));
    RETURN_IF_ERROR(backend->ScaleAndCap(decay, spec.bound, /*cap=*/0));
  }
  ColumnTaker after(convolved);
  const Tensor q = after(inner), k = after(inner), v = after(inner);
  // x / sqrt(sum of squares + eps), times the gains' sqrt(head_dim)
  const float eps = run.model.norm_eps / static_cast<float>(spec.head_dim);
  RETURN_IF_ERROR(backend->RmsNorm(q, weights.q_gain.tensor, eps, q));
  RETURN_IF_ERROR(backend->RmsNorm(k, weights.k_gain.tensor, eps, k));
  RETURN_IF_ERROR(backend->DeltaRule({.q = q,
                                      .k = k,
                                      .v = v,
                                      .beta = beta,
                                      .log_decay = decay,
                                      .heads = static_cast<int32_t>(spec.heads),
                                      .key_heads = static_cast<int32_t>(spec.heads)},
                                     rule, v));
  RETURN_IF_ERROR(backend->RmsNorm(v, weights.output_norm.tensor, run.model.norm_eps, v));
  RETURN_IF_ERROR(backend->GatedActivation(Activation::kSigmoid, gate, v, v));
  return v;
}

}  // namespace lm
