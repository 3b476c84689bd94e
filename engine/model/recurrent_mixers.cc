// Mixers with a state of fixed size for each sequence: DeltaNet, state spaces, short convolutions.
#include <utility>

#include "engine/base/status_macros.h"
#include "engine/model/column_taker.h"
#include "engine/model/mixers.h"

namespace lm {
namespace {

// What both kinds of linear attention begin with: the convolution of a part of the first product.
absl::StatusOr<Tensor> Convolve(const LayerRun& run, Tensor from, Tensor bias,
                                const StateLayer& conv) {
  const Tensor convolved = run.Of(run.act.mixed, from.cols);
  RETURN_IF_ERROR(run.backend->CausalConv(from, run.mixer.conv.tensor, bias, Activation::kSilu,
                                          conv, convolved));
  return convolved;
}

}  // namespace

absl::StatusOr<Tensor> ApplyDeltaNet(const LayerRun& run, const DeltaNetSpec& spec,
                                     const StateLayer& conv, const StateLayer& rule) {
  Backend* const backend = run.backend;
  const DeltaNetWeights& net = run.mixer.delta_net;
  ColumnTaker input(run.act.mixer_input.Rows(0, run.rows));
  const Tensor qkv = input(spec.conv_cols()), z = input(spec.value_cols());
  const Tensor beta = input(spec.heads), alpha = input(spec.heads);
  ASSIGN_OR_RETURN(const Tensor convolved, Convolve(run, qkv, {}, conv));
  ColumnTaker after(convolved);
  const Tensor q = after(spec.key_cols()), k = after(spec.key_cols());
  const Tensor v = after(spec.value_cols());
  // x / sqrt(sum of squares + eps), times the gains' sqrt(key_dim)
  const float eps = run.model.norm_eps / static_cast<float>(spec.key_dim);
  RETURN_IF_ERROR(backend->RmsNorm(q, net.q_gain.tensor, eps, q));
  RETURN_IF_ERROR(backend->RmsNorm(k, net.k_gain.tensor, eps, k));
  RETURN_IF_ERROR(backend->DeltaRule({.q = q,
                                      .k = k,
                                      .v = v,
                                      .alpha = alpha,
                                      .beta = beta,
                                      .dt_bias = net.dt_bias.tensor,
                                      .a = net.a.tensor,
                                      .heads = static_cast<int32_t>(spec.heads),
                                      .key_heads = static_cast<int32_t>(spec.key_heads),
                                      .grouped = spec.grouped},
                                     rule, v));
  RETURN_IF_ERROR(backend->RmsNorm(v, net.output_norm.tensor, run.model.norm_eps, v));
  RETURN_IF_ERROR(backend->GatedActivation(Activation::kSilu, z, v, v));
  return v;
}

absl::StatusOr<Tensor> ApplyStateSpace(const LayerRun& run, const StateSpaceSpec& spec,
                                       const StateLayer& conv, const StateLayer& rule) {
  Backend* const backend = run.backend;
  const StateSpaceWeights& space = run.mixer.state_space;
  ColumnTaker input(run.act.mixer_input.Rows(0, run.rows));
  const Tensor z = input(spec.inner()), before = input(spec.conv_cols());
  const Tensor time = input(spec.heads);
  ASSIGN_OR_RETURN(const Tensor convolved, Convolve(run, before, space.conv_bias.tensor, conv));
  ColumnTaker after(convolved);
  const Tensor x = after(spec.inner()), b = after(spec.group_cols()), c = after(spec.group_cols());
  RETURN_IF_ERROR(backend->DeltaRule({.q = c,
                                      .k = b,
                                      .v = x,
                                      .alpha = time,
                                      .dt_bias = space.dt_bias.tensor,
                                      .a = space.a.tensor,
                                      .heads = static_cast<int32_t>(spec.heads),
                                      .key_heads = static_cast<int32_t>(spec.groups),
                                      .grouped = true,
                                      .rule = StateRule::kStateSpace,
                                      .skip = space.skip.tensor},
                                     rule, x));
  RETURN_IF_ERROR(backend->GatedActivation(Activation::kSilu, z, x, x));
  if (!space.output_norm.empty()) {
    RETURN_IF_ERROR(backend->Normalize(x, space.output_norm.norm, x));
  }
  return x;
}

absl::StatusOr<Tensor> ApplySelective(const LayerRun& run, const SelectiveSpec& spec,
                                      const StateLayer& conv, const StateLayer& rule) {
  Backend* const backend = run.backend;
  const SelectiveWeights& weights = run.mixer.selective;
  ColumnTaker input(run.act.mixer_input.Rows(0, run.rows));
  const bool in_heads = spec.head_dim > 0;
  Tensor before = input(spec.inner), z = input(spec.inner);
  if (in_heads) std::swap(before, z);
  ASSIGN_OR_RETURN(const Tensor x, Convolve(run, before, weights.conv_bias.tensor, conv));
  const Tensor from_x = run.Of(run.act.selective, spec.step_rank + 2 * spec.state_dim);
  RETURN_IF_ERROR(
      run.Apply(weights.from_x, ProductInput::Plain(x), ProductResult::kReplaces, from_x));
  ColumnTaker parts(from_x);
  Tensor low = in_heads ? Tensor() : parts(spec.step_rank);
  const Tensor b = parts(spec.state_dim), c = parts(spec.state_dim);
  if (in_heads) low = parts(spec.step_rank);
  if (spec.norms != SelectiveSpec::Norms::kNone) {
    RETURN_IF_ERROR(backend->Normalize(low, weights.step_norm.norm, low));
    RETURN_IF_ERROR(backend->Normalize(b, weights.b_norm.norm, b));
    RETURN_IF_ERROR(backend->Normalize(c, weights.c_norm.norm, c));
  }
  const Tensor step = before.Cols(0, spec.heads());  // which nobody needs any more
  RETURN_IF_ERROR(
      run.Apply(weights.step, ProductInput::Plain(low), ProductResult::kReplaces, step));
  RETURN_IF_ERROR(backend->DeltaRule({.q = c,
                                      .k = b,
                                      .v = x,
                                      .alpha = step,
                                      .dt_bias = weights.no_bias.tensor,
                                      .a = weights.a.tensor,
                                      .heads = static_cast<int32_t>(spec.heads()),
                                      .key_heads = 1,
                                      .grouped = true,
                                      .rule = StateRule::kStateSpace,
                                      .skip = weights.skip.tensor},
                                     rule, x));
  RETURN_IF_ERROR(backend->GatedActivation(Activation::kSilu, z, x, x));
  return x;
}

absl::StatusOr<Tensor> ApplyShortConv(const LayerRun& run, const ShortConvSpec& spec,
                                      const StateLayer& conv) {
  Backend* const backend = run.backend;
  ColumnTaker input(run.act.mixer_input.Rows(0, run.rows));
  const Tensor b = input(spec.channels), c = input(spec.channels), u = input(spec.channels);
  const Tensor out = run.Of(run.act.mixed, spec.channels);
  RETURN_IF_ERROR(backend->GatedActivation(Activation::kIdentity, b, u, b));
  RETURN_IF_ERROR(
      backend->CausalConv(b, run.mixer.conv.tensor, {}, Activation::kIdentity, conv, out));
  RETURN_IF_ERROR(backend->GatedActivation(Activation::kIdentity, c, out, out));
  return out;
}

}  // namespace lm
