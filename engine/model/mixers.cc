#include "engine/model/mixers.h"

#include "engine/base/status_macros.h"

namespace lm {

absl::StatusOr<Tensor> MixBeside(const LayerRun& run, int64_t index, const LayerCache& cache) {
  const StateSpaceSpec& spec = *run.spec.beside;
  RETURN_IF_ERROR(run.Apply(run.weights.beside.input, NormedInput(run.x(), run.weights.mixer_norm),
                            ProductResult::kReplaces,
                            run.Of(run.act.mixer_input, spec.input_cols())));
  const LayerRun own = {.model = run.model,
                        .spec = run.spec,
                        .weights = run.weights,
                        .mixer = run.weights.beside,
                        .backend = run.backend,
                        .act = run.act,
                        .rows = run.rows,
                        .adapted = run.adapted,
                        .tables = run.tables,
                        .tokens = run.tokens};
  ASSIGN_OR_RETURN(const Tensor mixed,
                   ApplyStateSpace(own, spec, cache.conv_state(index), cache.rule_state(index)));
  const Tensor out = run.act.beside.Rows(0, run.rows);
  RETURN_IF_ERROR(
      run.Apply(own.mixer.output, ProductInput::Plain(mixed), ProductResult::kReplaces, out));
  return out;
}

absl::StatusOr<Tensor> Mix(const LayerRun& run, int64_t index, const LayerCache& cache) {
  const LayerSpec& spec = run.spec;
  RETURN_IF_ERROR(run.Apply(run.mixer.input, NormedInput(run.x(), run.weights.mixer_norm),
                            ProductResult::kReplaces,
                            run.Of(run.act.mixer_input, MixerInputCols(spec))));
  if (const DeltaNetSpec* net = spec.delta_net()) {
    return ApplyDeltaNet(run, *net, cache.conv_state(index), cache.rule_state(index));
  }
  if (const KimiDeltaSpec* kimi = spec.kimi_delta()) {
    return ApplyKimiDelta(run, *kimi, cache.conv_state(index), cache.rule_state(index));
  }
  if (const RwkvSpec* rwkv = spec.rwkv()) {
    return ApplyRwkv(run, *rwkv, cache.conv_state(index), cache.rule_state(index));
  }
  if (const StateSpaceSpec* space = spec.state_space()) {
    return ApplyStateSpace(run, *space, cache.conv_state(index), cache.rule_state(index));
  }
  if (const SelectiveSpec* selective = spec.selective()) {
    return ApplySelective(run, *selective, cache.conv_state(index), cache.rule_state(index));
  }
  if (const ShortConvSpec* conv = spec.short_conv()) {
    return ApplyShortConv(run, *conv, cache.conv_state(index));
  }
  const AttentionSpec& attention = *spec.attention();
  if (attention.compressed.has_value()) {
    return AttendCompressed(run, attention, cache.rows(index), cache.conv_state(index),
                            cache.rule_state(index));
  }
  const KvLayer& kv = cache.kv(attention.kv_source < 0 ? index : attention.kv_source);
  return attention.latent.has_value() ? AttendLatent(run, attention, kv)
                                      : Attend(run, attention, kv);
}

}  // namespace lm
