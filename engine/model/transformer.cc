#include "engine/model/transformer.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

#include "engine/base/status_macros.h"
#include "engine/model/cache_spec.h"
#include "engine/model/rope.h"

namespace lm {
namespace {

// The row lists of a step.
enum RowList : int32_t {
  kKept,        // rows that something is wanted of, ascending
  kAllKept,     // 0, 1, ..., as many
  kKeptLogits,  // of the kept rows, those that logits are computed of: logit_rows, and the others
  kKeptHidden,  // ... whose hidden states are
  kPositions,   // of the tokens, where these have weights
  kNumRowLists,
};

// The input of a product: x normed, if there is a norm for it.
ProductInput Normed(Tensor x, const DeviceNorm& norm) {
  return norm.empty() ? ProductInput::Plain(x) : ProductInput::Normed(x, norm.norm);
}

// What goes into a feed-forward's last product.
ProductInput Active(const FeedForwardSpec& spec, Tensor between) {
  return spec.gated ? ProductInput::Gated(between, spec.activation)
                    : ProductInput::Activated(between, spec.activation);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Transformer>> Transformer::Load(const GgufFile& gguf,
                                                               const ModelSpec& spec,
                                                               int64_t kv_bytes, DType kv_dtype,
                                                               std::vector<Part> parts) {
  std::vector<Stage> stages;
  for (Part& part : parts) {
    stages.push_back({.backend = std::move(part.backend), .first = part.first, .end = part.end});
  }
  auto backend_of = [&stages](int64_t layer) {
    const auto stage = std::find_if(stages.begin(), stages.end(),
                                    [layer](const Stage& s) { return layer < s.end; });
    return stage->backend.get();
  };
  ASSIGN_OR_RETURN(Weights weights, LoadWeights(gguf, spec, backend_of));
  ASSIGN_OR_RETURN(const CacheSpec cache, PlanCache(spec, kv_bytes, kv_dtype));
  for (Stage& stage : stages) {
    ASSIGN_OR_RETURN(stage.cache,
                     LayerCache::Create(spec, cache, stage.first, stage.end, stage.backend.get()));
  }
  return std::unique_ptr<Transformer>(
      new Transformer(spec, cache.shape, std::move(stages), std::move(weights)));
}

Transformer::Transformer(const ModelSpec& spec, const CacheShape& cache, std::vector<Stage> stages,
                         Weights weights)
    : spec_(spec), cache_(cache), stages_(std::move(stages)), weights_(std::move(weights)) {
  for (size_t i = 0; i < spec_.ropes.size(); ++i) {
    frequencies_.push_back(RopeFrequencies(spec_.ropes[i], weights_.rope_factors[i]));
  }
}

absl::Status Transformer::Launch(ModelStep step) {
  step_ = std::move(step);
  FillRopes();
  ListRows();
  ListPositions();
  return absl::OkStatus();
}

absl::Status Transformer::Await(const std::atomic<bool>& cancel, StepResults* results) {
  results->cache_ops_done = false;
  RETURN_IF_ERROR(ApplyCacheOps());
  results->cache_ops_done = true;
  const int64_t tokens = static_cast<int64_t>(step_.tables.tokens.size());
  results->logits.resize(step_.logit_rows.size() * spec_.vocab);
  results->hidden.resize(step_.hidden_rows.size() * spec_.hidden);
  results->tokens.clear();
  for (size_t i = 0; i < stages_.size(); ++i) {
    Stage* stage = &stages_[i];
    RETURN_IF_ERROR(Reserve(tokens, stage));
    RETURN_IF_ERROR(stage->backend->BeginStep(&step_.tables));
    // x = embedding[tokens], or what the layers before have made of it
    RETURN_IF_ERROR(i == 0 ? stage->backend->Embed(*weights_.embedding, spec_.embedding_scale,
                                                   stage->act.x.Rows(0, tokens))
                           : Hand(&stages_[i - 1], stage));
    if (i == 0 && spec_.learned_positions > 0) RETURN_IF_ERROR(PlacePositions(stage));
    if (!temperatures_.empty()) {
      RETURN_IF_ERROR(stage->backend->Upload(temperatures_.data(), stage->act.temperature.data,
                                             temperatures_.size() * sizeof(float)));
    }
    RETURN_IF_ERROR(RunLayers(cancel, stage));
  }
  if (kept_ == 0) return stages_.back().backend->Synchronize();
  return Head(results);
}

absl::Status Transformer::ApplyCacheOps() {
  for (const CacheOp& op : step_.cache_ops) {
    for (const Stage& stage : stages_) {
      RETURN_IF_ERROR(stage.cache.Apply(op, stage.backend.get()));
    }
  }
  return absl::OkStatus();
}

absl::Status Transformer::RunLayers(const std::atomic<bool>& cancel, Stage* stage) {
  int64_t rows = static_cast<int64_t>(step_.tables.tokens.size());
  for (int64_t i = stage->first; i < stage->end; ++i) {
    if (cancel.load(std::memory_order_relaxed)) {
      return absl::CancelledError("the generation was cancelled");
    }
    const LayerSpec& spec = spec_.layers[i];
    const LayerWeights& layer = weights_.layers[i];
    Tensor mixed;
    if (spec.has_mixer()) {
      ASSIGN_OR_RETURN(mixed, Mix(i, stage));
    }
    if (i == spec_.num_layers() - 1 && kept_ < rows) {
      // Nobody reads the other rows after the last layer's keys and values are stored.
      if (kept_ == 0) break;
      RETURN_IF_ERROR(KeepRows(stage->act.x, stage));
      if (spec.has_mixer()) RETURN_IF_ERROR(KeepRows(mixed, stage));
      rows = kept_;
    }
    auto add_mixed = [&] {
      if (!spec.has_mixer()) return absl::OkStatus();
      return AddToResidual(layer.mixer_output, ProductInput::Plain(mixed.Rows(0, rows)),
                           layer.post_mixer_norm, spec.residual_scale, stage);
    };
    if (!spec.parallel) RETURN_IF_ERROR(add_mixed());
    if (spec.feed_forward.exists()) RETURN_IF_ERROR(FeedForward(spec, layer, rows, stage));
    if (spec.parallel) RETURN_IF_ERROR(add_mixed());
  }
  return absl::OkStatus();
}

// x += the positions' embedding.
absl::Status Transformer::PlacePositions(Stage* stage) {
  const int64_t tokens = static_cast<int64_t>(step_.tables.tokens.size());
  const Tensor embedding = stage->act.hidden.Rows(0, tokens);
  RETURN_IF_ERROR(stage->backend->GatherRows(weights_.positions.tensor, kPositions, embedding));
  return stage->backend->Add(stage->act.x.Rows(0, tokens), embedding, /*scale=*/1);
}

// Moves the residual stream from a stage that has finished to the next, through host memory.
absl::Status Transformer::Hand(Stage* from, Stage* to) {
  handed_.resize(step_.tables.tokens.size() * spec_.hidden);
  const size_t bytes = handed_.size() * sizeof(float);
  RETURN_IF_ERROR(from->backend->Download(from->act.x.data, handed_.data(), bytes));
  return to->backend->Upload(handed_.data(), to->act.x.data, bytes);
}

// What the layer's mixer makes of x, before its last product.
absl::StatusOr<Tensor> Transformer::Mix(int64_t index, Stage* stage) {
  const LayerSpec& spec = spec_.layers[index];
  const LayerWeights& weights = weights_.layers[index];
  const int64_t tokens = static_cast<int64_t>(step_.tables.tokens.size());
  const Tensor x = stage->act.x.Rows(0, tokens);
  RETURN_IF_ERROR(weights.mixer_input.Apply(
      stage->backend.get(), Normed(x, weights.mixer_norm), ProductResult::kReplaces,
      stage->act.mixer_input.Rows(0, tokens).Cols(0, MixerInputCols(spec))));
  if (const DeltaNetSpec* net = spec.delta_net()) {
    return ApplyDeltaNet(*net, weights, stage->cache.conv_state(index),
                         stage->cache.rule_state(index), stage);
  }
  if (const StateSpaceSpec* space = spec.state_space()) {
    return ApplyStateSpace(*space, weights, stage->cache.conv_state(index),
                           stage->cache.rule_state(index), stage);
  }
  if (const ShortConvSpec* conv = spec.short_conv()) {
    return ApplyShortConv(*conv, weights, stage->cache.conv_state(index), stage);
  }
  const AttentionSpec& attention = *spec.attention();
  return attention.latent.has_value()
             ? AttendLatent(attention, weights, stage->cache.kv(index), stage)
             : Attend(attention, weights, stage->cache.kv(index), stage);
}

absl::StatusOr<Tensor> Transformer::Attend(const AttentionSpec& spec, const LayerWeights& weights,
                                           const KvLayer& kv, Stage* stage) {
  Backend* backend = stage->backend.get();
  const int64_t tokens = static_cast<int64_t>(step_.tables.tokens.size());
  Tensor input = stage->act.mixer_input.Rows(0, tokens);
  auto take = [&input, used = int64_t{0}](int64_t cols) mutable {
    return input.Cols(std::exchange(used, used + cols), cols);
  };
  const Tensor q = take(spec.q_cols()), gate = take(spec.gate_cols());
  const Tensor k = take(spec.k_cols()), v = take(spec.v_cols());
  auto norm_heads = [&] {
    if (spec.head_norm == HeadNorm::kNone) return absl::OkStatus();
    RETURN_IF_ERROR(backend->Normalize(q, weights.q_norm.norm, q));
    return backend->Normalize(k, weights.k_norm.norm, k);
  };
  Rope rope = {.table = spec.rope};
  if (spec.rope >= 0) rope.pairing = spec_.ropes[spec.rope].pairing;
  if (!spec.norms_after_turning) RETURN_IF_ERROR(norm_heads());
  RETURN_IF_ERROR(backend->RopeAndStoreKv(q, k, v, rope, kv));
  if (spec.norms_after_turning) {  // and the normed keys take the place of those
    RETURN_IF_ERROR(norm_heads());
    RETURN_IF_ERROR(backend->RopeAndStoreKv(q, k, v, /*rope=*/{}, kv));
  }
  if (spec.tempered) {
    RETURN_IF_ERROR(
        backend->ScaleRows(q, stage->act.temperature.Rows(0, tokens), Activation::kIdentity));
  }
  const Tensor out = stage->act.mixed.Rows(0, tokens).Cols(0, spec.out_cols());
  RETURN_IF_ERROR(backend->Attention(q, kv,
                                     {.scale = spec.scale,
                                      .window = {.size = static_cast<int32_t>(spec.window)},
                                      .softcap = spec.softcap,
                                      .sinks = weights.sinks.tensor},
                                     out));
  if (spec.output_gate != OutputGate::kNone) {
    RETURN_IF_ERROR(backend->GatedActivation(Activation::kSigmoid, gate, out, out));
  }
  return out;
}

absl::StatusOr<Tensor> Transformer::AttendLatent(const AttentionSpec& spec,
                                                 const LayerWeights& weights, const KvLayer& kv,
                                                 Stage* stage) {
  Backend* backend = stage->backend.get();
  const LatentSpec& own = *spec.latent;
  const LatentWeights& latent = weights.latent;
  const int64_t tokens = static_cast<int64_t>(step_.tables.tokens.size());
  const int64_t turning = spec.latent_rope(), rank = spec.value_dim;
  auto of = [tokens](Tensor buffer, int64_t cols) { return buffer.Rows(0, tokens).Cols(0, cols); };
  const int64_t before_cols = own.q_rank > 0 ? own.q_rank : spec.latent_q_cols();
  const Tensor input = of(stage->act.mixer_input, before_cols + spec.key_dim);
  const Tensor before_q = input.Cols(0, before_cols);
  const Tensor c = input.Cols(before_cols, rank);
  const Tensor k_turning = input.Cols(before_cols + rank, turning);

  Tensor q = before_q;
  if (own.q_rank > 0) {
    q = of(stage->act.latent_q, spec.latent_q_cols());
    RETURN_IF_ERROR(backend->Normalize(before_q, latent.q_norm.norm, before_q));
    RETURN_IF_ERROR(
        latent.q_b.Apply(backend, ProductInput::Plain(before_q), ProductResult::kReplaces, q));
  }
  auto copy = [backend](Tensor from, Tensor to) {
    return backend->GatedActivation(Activation::kIdentity, from, {}, to);
  };
  const Tensor key = of(stage->act.latent_key, spec.key_dim), value = key.Cols(turning, rank);
  RETURN_IF_ERROR(copy(k_turning, key.Cols(0, turning)));
  RETURN_IF_ERROR(backend->Normalize(c, latent.norm.norm, value));
  const Tensor query = of(stage->act.latent_query, spec.q_cols());
  for (int64_t h = 0; h < spec.heads; ++h) {
    const Tensor from = q.Cols(h * (own.nope + turning), own.nope + turning);
    const Tensor to = query.Cols(h * spec.key_dim, spec.key_dim);
    RETURN_IF_ERROR(copy(from.Cols(own.nope, turning), to.Cols(0, turning)));
    RETURN_IF_ERROR(latent.k[h].Apply(backend, ProductInput::Plain(from.Cols(0, own.nope)),
                                      ProductResult::kReplaces, to.Cols(turning, rank)));
  }
  const Rope rope = {.table = spec.rope, .pairing = spec_.ropes[spec.rope].pairing};
  RETURN_IF_ERROR(backend->RopeAndStoreKv(query, key, value, rope, kv));
  const Tensor attended = of(stage->act.latent_out, spec.out_cols());
  RETURN_IF_ERROR(backend->Attention(query, kv, {.scale = spec.scale}, attended));
  const Tensor out = of(stage->act.mixed, spec.heads * own.value_dim);
  for (int64_t h = 0; h < spec.heads; ++h) {
    RETURN_IF_ERROR(latent.v[h].Apply(backend, ProductInput::Plain(attended.Cols(h * rank, rank)),
                                      ProductResult::kReplaces,
                                      out.Cols(h * own.value_dim, own.value_dim)));
  }
  return out;
}

absl::StatusOr<Tensor> Transformer::ApplyShortConv(const ShortConvSpec& spec,
                                                   const LayerWeights& weights,
                                                   const StateLayer& conv, Stage* stage) {
  Backend* backend = stage->backend.get();
  const int64_t tokens = static_cast<int64_t>(step_.tables.tokens.size()), n = spec.channels;
  const Tensor input = stage->act.mixer_input.Rows(0, tokens);
  const Tensor b = input.Cols(0, n), c = input.Cols(n, n), u = input.Cols(2 * n, n);
  const Tensor out = stage->act.mixed.Rows(0, tokens).Cols(0, n);
  RETURN_IF_ERROR(backend->GatedActivation(Activation::kIdentity, b, u, b));
  RETURN_IF_ERROR(
      backend->CausalConv(b, weights.conv.tensor, {}, Activation::kIdentity, conv, out));
  RETURN_IF_ERROR(backend->GatedActivation(Activation::kIdentity, c, out, out));
  return out;
}

absl::StatusOr<Tensor> Transformer::ApplyStateSpace(const StateSpaceSpec& spec,
                                                    const LayerWeights& weights,
                                                    const StateLayer& conv, const StateLayer& rule,
                                                    Stage* stage) {
  Backend* backend = stage->backend.get();
  const StateSpaceWeights& space = weights.state_space;
  const int64_t tokens = static_cast<int64_t>(step_.tables.tokens.size());
  const Tensor input = stage->act.mixer_input.Rows(0, tokens);
  const Tensor z = input.Cols(0, spec.inner());
  const Tensor before = input.Cols(spec.inner(), spec.conv_cols());
  const Tensor time = input.Cols(spec.inner() + spec.conv_cols(), spec.heads);
  const Tensor convolved = stage->act.mixed.Rows(0, tokens).Cols(0, spec.conv_cols());
  RETURN_IF_ERROR(backend->CausalConv(before, weights.conv.tensor, space.conv_bias.tensor,
                                      Activation::kSilu, conv, convolved));
  const Tensor x = convolved.Cols(0, spec.inner());
  RETURN_IF_ERROR(
      backend->DeltaRule({.q = convolved.Cols(spec.inner() + spec.group_cols(), spec.group_cols()),
                          .k = convolved.Cols(spec.inner(), spec.group_cols()),
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
  RETURN_IF_ERROR(backend->Normalize(x, space.output_norm.norm, x));
  return x;
}

absl::StatusOr<Tensor> Transformer::ApplyDeltaNet(const DeltaNetSpec& spec,
                                                  const LayerWeights& weights,
                                                  const StateLayer& conv, const StateLayer& rule,
                                                  Stage* stage) {
  Backend* backend = stage->backend.get();
  const DeltaNetWeights& net = weights.delta_net;
  const int64_t tokens = static_cast<int64_t>(step_.tables.tokens.size());
  Tensor input = stage->act.mixer_input.Rows(0, tokens);
  auto take = [&input, used = int64_t{0}](int64_t cols) mutable {
    return input.Cols(std::exchange(used, used + cols), cols);
  };
  const Tensor qkv = take(spec.conv_cols()), z = take(spec.value_cols());
  const Tensor beta = take(spec.heads), alpha = take(spec.heads);
  const Tensor convolved = stage->act.mixed.Rows(0, tokens).Cols(0, spec.conv_cols());
  RETURN_IF_ERROR(
      backend->CausalConv(qkv, weights.conv.tensor, {}, Activation::kSilu, conv, convolved));
  const Tensor q = convolved.Cols(0, spec.key_cols());
  const Tensor k = convolved.Cols(spec.key_cols(), spec.key_cols());
  const Tensor v = convolved.Cols(2 * spec.key_cols(), spec.value_cols());
  // x / sqrt(sum of squares + eps), times the gains' sqrt(key_dim)
  const float eps = spec_.norm_eps / static_cast<float>(spec.key_dim);
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
  RETURN_IF_ERROR(backend->RmsNorm(v, net.output_norm.tensor, spec_.norm_eps, v));
  RETURN_IF_ERROR(backend->GatedActivation(Activation::kSilu, z, v, v));
  return v;
}

absl::Status Transformer::FeedForward(const LayerSpec& spec, const LayerWeights& weights,
                                      int64_t rows, Stage* stage) {
  const FeedForwardSpec& own = spec.feed_forward;
  Backend* backend = stage->backend.get();
  const Tensor x = stage->act.x.Rows(0, rows);
  if (own.experts.has_value()) {
    ASSIGN_OR_RETURN(const Tensor mixed, MixExperts(own, weights, rows, stage));
    if (!weights.post_feed_forward_norm.empty()) {
      RETURN_IF_ERROR(backend->Normalize(mixed, weights.post_feed_forward_norm.norm, mixed));
    }
    return backend->Add(x, mixed, spec.residual_scale);
  }
  const Tensor gate_up = stage->act.gate_up.Rows(0, rows).Cols(0, own.InputCols(own.width));
  RETURN_IF_ERROR(weights.feed_forward.input.Apply(backend, Normed(x, weights.feed_forward_norm),
                                                   ProductResult::kReplaces, gate_up));
  return AddToResidual(weights.feed_forward.down, Active(own, gate_up),
                       weights.post_feed_forward_norm, spec.residual_scale, stage);
}

// What the experts make of x, in act.hidden: those of every row first one expert's rows after the
// other's, each with one product for all of them.
absl::StatusOr<Tensor> Transformer::MixExperts(const FeedForwardSpec& spec,
                                               const LayerWeights& weights, int64_t rows,
                                               Stage* stage) {
  Backend* backend = stage->backend.get();
  Activations& act = stage->act;
  const ExpertSpec& own = *spec.experts;
  const ExpertWeights& experts = weights.experts;
  const Tensor n = act.normed.Rows(0, rows), out = act.hidden.Rows(0, rows);
  RETURN_IF_ERROR(backend->Normalize(act.x.Rows(0, rows), weights.feed_forward_norm.norm, n));
  const Tensor logits = act.router.Rows(0, rows).Cols(0, own.count);
  RETURN_IF_ERROR(
      experts.router.Apply(backend, ProductInput::Plain(n), ProductResult::kReplaces, logits));
  Router router = own.router;
  router.bias = experts.choice_bias;
  RETURN_IF_ERROR(backend->Route(logits, router, &routes_));
  const int64_t slots = routes_.num_slots();
  const int64_t cols = own.latent > 0 ? own.latent : spec_.hidden;
  const Tensor of_slots(act.slots.data, DType::kF32, slots, cols);
  const Tensor gate_up(act.slot_gate_up.data, DType::kF32, slots, spec.InputCols(own.width));
  Tensor seen = n, sum = out;  // by and of the experts
  if (own.latent > 0) {
    seen = sum = act.shared.Rows(0, rows).Cols(0, cols);
    RETURN_IF_ERROR(
        experts.latent_down.Apply(backend, ProductInput::Plain(n), ProductResult::kReplaces, seen));
  }
  RETURN_IF_ERROR(backend->GatherSlots(seen, routes_, of_slots));
  for (int64_t e = 0; e < own.count; ++e) {
    const int64_t begin = routes_.begin[e], count = routes_.begin[e + 1] - begin;
    if (count == 0) continue;
    const Tensor x = of_slots.Rows(begin, count), between = gate_up.Rows(begin, count);
    RETURN_IF_ERROR(experts.experts[e].input.Apply(backend, ProductInput::Plain(x),
                                                   ProductResult::kReplaces, between));
    RETURN_IF_ERROR(
        experts.experts[e].down.Apply(backend, Active(spec, between), ProductResult::kReplaces, x));
  }
  RETURN_IF_ERROR(backend->CombineSlots(of_slots, routes_, sum));
  if (own.latent > 0) {
    RETURN_IF_ERROR(
        experts.latent_up.Apply(backend, ProductInput::Plain(sum), ProductResult::kReplaces, out));
  }
  if (own.shared_width == 0) return out;

  const Tensor between = act.gate_up.Rows(0, rows).Cols(0, spec.InputCols(own.shared_width));
  RETURN_IF_ERROR(experts.shared.input.Apply(backend, ProductInput::Plain(n),
                                             ProductResult::kReplaces, between));
  if (!own.shared_gate) {
    RETURN_IF_ERROR(
        experts.shared.down.Apply(backend, Active(spec, between), ProductResult::kIsAdded, out));
    return out;
  }
  const Tensor shared = act.shared.Rows(0, rows),
               gate = act.router.Rows(0, rows).Cols(own.count, 1);
  RETURN_IF_ERROR(
      experts.shared.down.Apply(backend, Active(spec, between), ProductResult::kReplaces, shared));
  RETURN_IF_ERROR(
      experts.shared_gate.Apply(backend, ProductInput::Plain(n), ProductResult::kReplaces, gate));
  RETURN_IF_ERROR(backend->ScaleRows(shared, gate, Activation::kSigmoid));
  RETURN_IF_ERROR(backend->Add(out, shared, /*scale=*/1));
  return out;
}

// x += scale times the projection of the input, normed first if there is a norm for it.
absl::Status Transformer::AddToResidual(const Projection& projection, const ProductInput& input,
                                        const DeviceNorm& post_norm, float scale, Stage* stage) {
  Backend* backend = stage->backend.get();
  const Tensor x = stage->act.x.Rows(0, input.rows());
  if (post_norm.empty() && scale == 1) {
    return projection.Apply(backend, input, ProductResult::kIsAdded, x);
  }
  const Tensor added = stage->act.hidden.Rows(0, input.rows());
  RETURN_IF_ERROR(projection.Apply(backend, input, ProductResult::kReplaces, added));
  if (!post_norm.empty()) RETURN_IF_ERROR(backend->Normalize(added, post_norm.norm, added));
  return backend->Add(x, added, scale);
}

// hidden = norm(x), logits = W_head norm(x), on the last stage. The first rows of x are the kept.
absl::Status Transformer::Head(StepResults* results) {
  Backend* backend = stages_.back().backend.get();
  const Activations& act = stages_.back().act;
  Tensor h = act.hidden.Rows(0, kept_);
  RETURN_IF_ERROR(backend->Normalize(act.x.Rows(0, kept_), weights_.output_norm.norm, h));
  if (!step_.hidden_rows.empty()) {
    ASSIGN_OR_RETURN(const Tensor hidden, Pick(h, kKeptHidden));
    RETURN_IF_ERROR(backend->Download(hidden.data, results->hidden.data(),
                                      results->hidden.size() * sizeof(float)));
  }
  if (head_rows_ == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(h, Pick(h, kKeptLogits));
  std::vector<float>& read = results->logits;
  Tensor logits(read.data(), DType::kF32, head_rows_, spec_.vocab);
  const bool in_place = backend->uses_host_memory() && step_.samples.empty();
  if (!in_place) {
    RETURN_IF_ERROR(ReserveLogits(head_rows_));
    logits.data = logits_buffer_.data();
  }
  const Tensor bias = weights_.output_bias.tensor;
  RETURN_IF_ERROR(step_.wanted_logits.empty() || !bias.empty()
                      ? backend->MatMul(weights_.head(), h, bias, logits)
                      : backend->MatMulColumns(weights_.head(), h, step_.wanted_logits, logits));
  if (spec_.logit_scale != 1 || spec_.logit_softcap > 0) {
    RETURN_IF_ERROR(backend->ScaleAndCap(logits, spec_.logit_scale, spec_.logit_softcap));
  }
  if (!in_place && !read.empty()) {
    RETURN_IF_ERROR(backend->Download(logits.data, read.data(), read.size() * sizeof(float)));
  }
  return backend->Sample(logits, step_.samples, &results->tokens);
}

// Of the last stage's matrix whose rows are the kept ones, those of the list, a subset. Valid until
// the next call.
absl::StatusOr<Tensor> Transformer::Pick(Tensor from, int32_t list) {
  const std::vector<int32_t>& picks = step_.tables.row_lists[list];
  if (picks == step_.tables.row_lists[kAllKept]) return from;
  const int64_t rows = static_cast<int64_t>(picks.size());
  Stage& stage = stages_.back();
  Tensor picked(stage.act.gathered.data, DType::kF32, rows, from.cols);
  RETURN_IF_ERROR(stage.backend->GatherRows(from, list, picked));
  return picked;
}

// Moves the kept rows of a matrix to its top, through `gathered`.
absl::Status Transformer::KeepRows(Tensor from, Stage* stage) {
  Tensor gathered(stage->act.gathered.data, DType::kF32, kept_, from.cols);
  RETURN_IF_ERROR(stage->backend->GatherRows(from, kKept, gathered));
  return stage->backend->GatherRows(gathered, kAllKept, from.Rows(0, kept_));
}

void Transformer::ListRows() {
  std::vector<std::vector<int32_t>>& lists = step_.tables.row_lists;
  lists.assign(kNumRowLists, {});
  std::vector<int32_t>& kept = lists[kKept];
  const std::vector<int32_t>& read = step_.logit_rows;
  kept = read;
  for (const SamplingRow& sample : step_.samples) kept.push_back(sample.row);
  kept.insert(kept.end(), step_.hidden_rows.begin(), step_.hidden_rows.end());
  std::sort(kept.begin(), kept.end());
  kept.erase(std::unique(kept.begin(), kept.end()), kept.end());
  kept_ = static_cast<int64_t>(kept.size());
  lists[kAllKept].resize(kept.size());
  std::iota(lists[kAllKept].begin(), lists[kAllKept].end(), 0);
  auto among = [](const std::vector<int32_t>& rows, int32_t row) {
    return static_cast<int32_t>(std::lower_bound(rows.begin(), rows.end(), row) - rows.begin());
  };
  for (int32_t row : step_.hidden_rows) lists[kKeptHidden].push_back(among(kept, row));
  std::vector<int32_t>& head = lists[kKeptLogits];
  for (int32_t row : read) head.push_back(among(kept, row));
  for (SamplingRow& sample : step_.samples) {  // from now on a row of the logits
    const int32_t row = sample.row;
    sample.row = among(read, row);
    if (sample.row < static_cast<int32_t>(read.size()) && read[sample.row] == row) continue;
    sample.row = static_cast<int32_t>(head.size());
    head.push_back(among(kept, row));
  }
  head_rows_ = static_cast<int64_t>(head.size());
}

// What else depends on the tokens' positions.
void Transformer::ListPositions() {
  temperatures_.clear();
  for (const StepSequence& sequence : step_.tables.sequences) {
    for (int32_t p = sequence.first_position; p < sequence.context(); ++p) {
      if (spec_.learned_positions > 0) step_.tables.row_lists[kPositions].push_back(p);
      if (spec_.temperature.beta == 0) continue;
      const double turns = static_cast<double>(p / spec_.temperature.length);
      temperatures_.push_back(static_cast<float>(1 + spec_.temperature.beta * std::log(turns + 1)));
    }
  }
}

// The angles of each token's position, for each rope.
void Transformer::FillRopes() {
  std::vector<RopeTable>& ropes = step_.tables.ropes;
  ropes.resize(spec_.ropes.size());
  for (size_t r = 0; r < ropes.size(); ++r) {
    const RopeSpec& spec = spec_.ropes[r];
    ropes[r].dim = static_cast<int32_t>(spec.dim);
    ropes[r].angles.resize(step_.tables.tokens.size() * spec.dim);
    float* out = ropes[r].angles.data();
    for (const StepSequence& sequence : step_.tables.sequences) {
      for (int32_t p = sequence.first_position; p < sequence.context(); ++p) {
        for (const double frequency : frequencies_[r]) {
          const double angle = static_cast<double>(p) * frequency;
          *out++ = static_cast<float>(spec.magnitude * std::cos(angle));
          *out++ = static_cast<float>(spec.magnitude * std::sin(angle));
        }
      }
    }
  }
}

absl::Status Transformer::ReserveLogits(int64_t rows) {
  if (rows <= logits_capacity_) return absl::OkStatus();
  ASSIGN_OR_RETURN(logits_buffer_,
                   stages_.back().backend->Allocate(rows * spec_.vocab * sizeof(float)));
  logits_capacity_ = rows;
  return absl::OkStatus();
}

absl::Status Transformer::Reserve(int64_t tokens, Stage* stage) {
  Activations& act = stage->act;
  if (tokens <= act.capacity) return absl::OkStatus();
  const int64_t rows = std::max(tokens, 2 * act.capacity);
  const int64_t mixed = spec_.Widest([](const LayerSpec& l) {
    if (l.delta_net() != nullptr) return l.delta_net()->conv_cols();
    return l.state_space() != nullptr ? l.state_space()->conv_cols() : MixerOutputCols(l);
  });
  // The most that `width` gives for any mixture of experts.
  auto widest = [this](auto width) {
    return spec_.Widest([&](const LayerSpec& l) {
      return l.feed_forward.experts.has_value() ? width(l.feed_forward) : 0;
    });
  };
  auto latent = [this](auto width) {
    return spec_.Widest([&](const LayerSpec& l) {
      return l.attention() != nullptr && l.attention()->latent ? width(*l.attention()) : 0;
    });
  };
  const int64_t of_experts = widest([this](const FeedForwardSpec&) { return spec_.hidden; });
  const std::pair<Tensor*, int64_t> wants[] = {
      {&act.x, spec_.hidden},
      {&act.mixer_input, spec_.Widest(MixerInputCols)},
      {&act.mixed, mixed},
      {&act.gate_up, spec_.Widest([](const LayerSpec& l) {
         const FeedForwardSpec& f = l.feed_forward;
         return f.InputCols(f.experts.has_value() ? f.experts->shared_width : f.width);
       })},
      {&act.gathered, std::max(spec_.hidden, mixed)},
      {&act.hidden, spec_.hidden},
      {&act.temperature, spec_.temperature.beta != 0 ? 1 : 0},
      {&act.latent_q, latent([](const AttentionSpec& a) { return a.latent_q_cols(); })},
      {&act.latent_query, latent([](const AttentionSpec& a) { return a.q_cols(); })},
      {&act.latent_key, latent([](const AttentionSpec& a) { return a.key_dim; })},
      {&act.latent_out, latent([](const AttentionSpec& a) { return a.out_cols(); })},
      {&act.normed, of_experts},
      {&act.shared, of_experts},
      {&act.router, widest([](const FeedForwardSpec& f) { return f.experts->count + 1; })},
      {&act.slots, widest([this](const FeedForwardSpec& f) {
         return f.experts->router.chosen * spec_.hidden;
       })},
      {&act.slot_gate_up, widest([](const FeedForwardSpec& f) {
         return f.experts->router.chosen * f.InputCols(f.experts->width);
       })},
  };
  constexpr int64_t kAlignment = 64;
  int64_t bytes = 0;
  for (const auto& [tensor, cols] : wants) bytes += rows * cols * sizeof(float) + kAlignment;
  ASSIGN_OR_RETURN(act.buffer, stage->backend->Allocate(bytes));
  act.capacity = rows;
  char* next = static_cast<char*>(act.buffer.data());
  for (const auto& [tensor, cols] : wants) {
    *tensor = Tensor(next, DType::kF32, rows, cols);
    int64_t size = rows * cols * sizeof(float);
    next += (size + kAlignment - 1) / kAlignment * kAlignment;
  }
  return absl::OkStatus();
}

}  // namespace lm
