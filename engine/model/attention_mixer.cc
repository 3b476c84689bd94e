// Attention: over the keys and values of each head, with the norms, rotations, windows and gates
// that families add; and latent attention, over one compressed row for all heads.
#include "engine/base/status_macros.h"
#include "engine/model/column_taker.h"
#include "engine/model/mixers.h"

namespace lm {

namespace {

absl::Status ApplyOutputGate(const LayerRun& run, const AttentionSpec& spec, Tensor gate,
                             Tensor out) {
  if (spec.output_gate == OutputGate::kNone) return absl::OkStatus();
  if (spec.gate_of_heads) return run.backend->ScaleGroups(out, gate, spec.gate_activation);
  return run.backend->GatedActivation(spec.gate_activation, gate, out, out);
}

// How q and k of the layer turn.
Rope RopeOf(const LayerRun& run, const AttentionSpec& spec) {
  Rope rope = {.table = spec.rope};
  if (spec.rope >= 0) rope.pairing = run.model.ropes[spec.rope].pairing;
  return rope;
}

absl::Status Temper(const LayerRun& run, const AttentionSpec& spec, Tensor q) {
  if (!spec.tempered) return absl::OkStatus();
  return run.backend->ScaleGroups(q, run.act.temperature.Rows(0, run.rows), Activation::kIdentity);
}

}  // namespace

absl::StatusOr<Tensor> Attend(const LayerRun& run, const AttentionSpec& spec, const KvLayer& kv) {
  const MixerWeights& weights = run.mixer;
  Backend* const backend = run.backend;
  ColumnTaker take(run.act.mixer_input.Rows(0, run.rows));
  const Tensor q = take(spec.q_cols());
  Tensor gate, k, v;
  if (spec.output_gate == OutputGate::kInQ) gate = take(spec.gate_cols());
  if (spec.kv_source < 0) {
    k = take(spec.k_cols());
    v = take(spec.v_cols());
    if (spec.value_is_key) {
      RETURN_IF_ERROR(backend->GatedActivation(Activation::kIdentity, k, {}, v));
    }
    if (spec.value_norm) RETURN_IF_ERROR(backend->Normalize(v, weights.v_norm.norm, v));
  }
  if (spec.output_gate == OutputGate::kOwn) gate = take(spec.gate_cols());
  for (const Tensor each : {q, k, v}) {
    if (spec.clamp == 0 || each.empty()) continue;
    RETURN_IF_ERROR(backend->Clamp(each, -spec.clamp, spec.clamp));
  }
  auto norm_heads = [&] {
    if (spec.head_norm == HeadNorm::kNone) return absl::OkStatus();
    RETURN_IF_ERROR(backend->Normalize(q, weights.q_norm.norm, q));
    return k.empty() ? absl::OkStatus() : backend->Normalize(k, weights.k_norm.norm, k);
  };
  Rope rope = RopeOf(run, spec);
  if (spec.norms_after_turning && rope.table >= 0) {  // they turn whole (DescribeModel)
    RETURN_IF_ERROR(backend->RotateTails(q, spec.key_dim, rope));
    if (!k.empty()) RETURN_IF_ERROR(backend->RotateTails(k, spec.key_dim, rope));
    rope = {};
  }
  RETURN_IF_ERROR(norm_heads());
  RETURN_IF_ERROR(backend->RopeAndStoreKv(q, k, v, rope, kv));
  if (run.stores_only) return Tensor();
  RETURN_IF_ERROR(Temper(run, spec, q));
  const Tensor out = run.Of(run.act.mixed, spec.out_cols());
  RETURN_IF_ERROR(backend->Attention(q, kv,
                                     {.scale = spec.scale,
                                      .window = {.causal = run.model.causal,
                                                 .size = static_cast<int32_t>(spec.window),
                                                 .kind = spec.window_kind},
                                      .softcap = spec.softcap,
                                      .slopes = weights.slopes.tensor,
                                      .sinks = weights.sinks.tensor},
                                     out));
  if (spec.out_scale != 1) {
    RETURN_IF_ERROR(backend->ScaleAndCap(out, spec.out_scale, /*cap=*/0));
  }
  RETURN_IF_ERROR(ApplyOutputGate(run, spec, gate, out));
  return out;
}

absl::StatusOr<Tensor> AttendLatent(const LayerRun& run, const AttentionSpec& spec,
                                    const KvLayer& kv) {
  Backend* const backend = run.backend;
  const LatentSpec& own = *spec.latent;
  const LatentWeights& latent = run.mixer.latent;
  const int64_t turning = spec.latent_rope(), rank = spec.value_dim;
  const int64_t before_cols = own.q_rank > 0 ? own.q_rank : spec.latent_q_cols();
  ColumnTaker take(run.act.mixer_input.Rows(0, run.rows));
  const Tensor before_q = take(before_cols), c = take(rank), k_turning = take(turning);
  const Tensor gate = take(spec.gate_cols());

  Tensor q = before_q;
  if (own.q_rank > 0) {
    q = run.Of(run.act.latent_q, spec.latent_q_cols());
    RETURN_IF_ERROR(backend->Normalize(before_q, latent.q_norm.norm, before_q));
    RETURN_IF_ERROR(
        run.Apply(latent.q_b, ProductInput::Plain(before_q), ProductResult::kReplaces, q));
  }
  auto copy = [backend](Tensor from, Tensor to) {
    return backend->GatedActivation(Activation::kIdentity, from, {}, to);
  };
  const Tensor key = run.Of(run.act.latent_key, spec.key_dim);
  RETURN_IF_ERROR(copy(k_turning, key.Cols(0, turning)));
  RETURN_IF_ERROR(backend->Normalize(c, latent.norm.norm, c));
  RETURN_IF_ERROR(copy(c, key.Cols(turning, rank)));
  const Tensor query = run.Of(run.act.latent_query, spec.q_cols());
  for (int64_t h = 0; h < spec.heads; ++h) {
    const Tensor from = q.Cols(h * (own.nope + turning), own.nope + turning);
    const Tensor to = query.Cols(h * spec.key_dim, spec.key_dim);
    RETURN_IF_ERROR(copy(from.Cols(own.nope, turning), to.Cols(0, turning)));
    RETURN_IF_ERROR(run.Apply(latent.k[h], ProductInput::Plain(from.Cols(0, own.nope)),
                              ProductResult::kReplaces, to.Cols(turning, rank)));
  }
  RETURN_IF_ERROR(backend->RopeAndStoreKv(query, key, c, RopeOf(run, spec), kv));
  if (run.stores_only) return Tensor();
  RETURN_IF_ERROR(Temper(run, spec, query));
  const Tensor attended = run.Of(run.act.latent_out, spec.out_cols());
  RETURN_IF_ERROR(backend->Attention(
      query, kv, {.scale = spec.scale, .window = {.causal = run.model.causal}}, attended));
  const Tensor out = run.Of(run.act.mixed, spec.heads * own.value_dim);
  for (int64_t h = 0; h < spec.heads; ++h) {
    RETURN_IF_ERROR(run.Apply(latent.v[h], ProductInput::Plain(attended.Cols(h * rank, rank)),
                              ProductResult::kReplaces,
                              out.Cols(h * own.value_dim, own.value_dim)));
  }
  RETURN_IF_ERROR(ApplyOutputGate(run, spec, gate, out));
  return out;
}

}  // namespace lm
