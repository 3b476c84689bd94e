#include "engine/model/transformer.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "engine/base/status_macros.h"
#include "engine/model/rope.h"

namespace lm {

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
  ASSIGN_OR_RETURN(const int32_t num_blocks, KvCache::NumBlocks(spec, kv_bytes, kv_dtype));
  for (Stage& stage : stages) {
    ASSIGN_OR_RETURN(stage.kv_cache, KvCache::Create(spec, stage.first, stage.end, num_blocks,
                                                     kv_dtype, stage.backend.get()));
  }
  return std::unique_ptr<Transformer>(new Transformer(spec, std::move(stages), std::move(weights)));
}

Transformer::Transformer(const ModelSpec& spec, std::vector<Stage> stages, Weights weights)
    : spec_(spec),
      stages_(std::move(stages)),
      weights_(std::move(weights)),
      frequencies_(RopeFrequencies(spec_.rope, weights_.rope_factors)) {}

int64_t Transformer::kv_block_bytes() const {
  int64_t bytes = 0;
  for (const Stage& stage : stages_) bytes += stage.kv_cache.block_bytes();
  return bytes;
}

absl::Status Transformer::Forward(const Batch& batch, const std::atomic<bool>& cancel,
                                  absl::Span<float> logits) {
  const int64_t tokens = batch.tokens.size();
  std::vector<int32_t> kept;  // rows that something is wanted of
  std::set_union(batch.logit_rows.begin(), batch.logit_rows.end(), batch.hidden_rows.begin(),
                 batch.hidden_rows.end(), std::back_inserter(kept));
  ComputeRope(batch);
  for (size_t i = 0; i < stages_.size(); ++i) {
    Stage* stage = &stages_[i];
    RETURN_IF_ERROR(Reserve(tokens, stage));
    RETURN_IF_ERROR(stage->backend->Upload(rope_host_.data(), stage->act.rope.data,
                                           rope_host_.size() * sizeof(float)));
    // x = embedding[tokens], or what the layers before have made of it
    RETURN_IF_ERROR(i == 0 ? stage->backend->Embed(*weights_.embedding, batch.tokens,
                                                   stage->act.x.Rows(0, tokens))
                           : Hand(tokens, &stages_[i - 1], stage));
    RETURN_IF_ERROR(RunLayers(batch, kept, cancel, stage));
  }
  if (kept.empty()) return stages_.back().backend->Synchronize();
  return Head(batch, kept, logits);
}

absl::Status Transformer::RunLayers(const Batch& batch, absl::Span<const int32_t> kept,
                                    const std::atomic<bool>& cancel, Stage* stage) {
  Backend* backend = stage->backend.get();
  Activations& act = stage->act;
  int64_t rows = batch.tokens.size();
  for (int64_t i = stage->first; i < stage->end; ++i) {
    if (cancel.load(std::memory_order_relaxed)) {
      return absl::CancelledError("the generation was cancelled");
    }
    const LayerSpec& spec = spec_.layers[i];
    const LayerWeights& layer = weights_.layers[i];
    Tensor attention = act.attention.Cols(0, spec.attention.q_cols());
    // x += W_o attention(rope(W_qkv norm(x)))
    RETURN_IF_ERROR(Attend(spec.attention, layer, stage->kv_cache.layer(i), batch, stage));
    if (i == spec_.num_layers() - 1 && static_cast<int64_t>(kept.size()) < rows) {
      // Nobody reads the other rows after the last layer's keys and values are stored.
      if (kept.empty()) break;
      RETURN_IF_ERROR(KeepRows(kept, act.x, stage));
      RETURN_IF_ERROR(KeepRows(kept, attention, stage));
      rows = kept.size();
    }
    RETURN_IF_ERROR(layer.attention_output.Apply(backend,
                                                 ProductInput::Plain(attention.Rows(0, rows)),
                                                 ProductResult::kIsAdded, act.x.Rows(0, rows)));
    // x += W_down swiglu(W_gate_up norm(x))
    RETURN_IF_ERROR(FeedForward(spec.feed_forward, layer, rows, stage));
  }
  return absl::OkStatus();
}

// Moves the residual stream from a stage that has finished to the next, through host memory.
absl::Status Transformer::Hand(int64_t tokens, Stage* from, Stage* to) {
  handed_.resize(tokens * spec_.hidden);
  const size_t bytes = handed_.size() * sizeof(float);
  RETURN_IF_ERROR(from->backend->Download(from->act.x.data, handed_.data(), bytes));
  return to->backend->Upload(handed_.data(), to->act.x.data, bytes);
}

// attention = attention(rope(W_qkv norm(x))), storing this layer's keys and values.
absl::Status Transformer::Attend(const AttentionSpec& spec, const LayerWeights& weights,
                                 const KvLayer& kv, const Batch& batch, Stage* stage) {
  Backend* backend = stage->backend.get();
  const int64_t tokens = batch.tokens.size();
  Tensor x = stage->act.x.Rows(0, tokens);
  Tensor qkv = stage->act.qkv.Rows(0, tokens).Cols(0, spec.qkv_cols());
  RETURN_IF_ERROR(weights.qkv.Apply(
      backend, ProductInput::Normed(x, weights.attention_norm.tensor, spec_.rms_eps),
      ProductResult::kReplaces, qkv));
  Tensor q = qkv.Cols(0, spec.q_cols());
  Tensor k = qkv.Cols(spec.q_cols(), spec.kv_cols());
  Tensor v = qkv.Cols(spec.q_cols() + spec.kv_cols(), spec.kv_cols());
  if (spec.head_norms) {
    RETURN_IF_ERROR(backend->RmsNorm(q, weights.q_norm.tensor, spec_.rms_eps, q));
    RETURN_IF_ERROR(backend->RmsNorm(k, weights.k_norm.tensor, spec_.rms_eps, k));
  }
  RETURN_IF_ERROR(backend->RopeAndStoreKv(q, k, v, stage->act.rope.Rows(0, tokens),
                                          spec_.rope.pairing, slots_, kv));
  return backend->Attention(q, batch.sequences, kv, spec.scale,
                            stage->act.attention.Rows(0, tokens).Cols(0, spec.q_cols()));
}

absl::Status Transformer::FeedForward(const FeedForwardSpec& spec, const LayerWeights& weights,
                                      int64_t rows, Stage* stage) {
  Backend* backend = stage->backend.get();
  Tensor x = stage->act.x.Rows(0, rows);
  Tensor gate_up = stage->act.gate_up.Rows(0, rows).Cols(0, 2 * spec.width);
  RETURN_IF_ERROR(weights.gate_up.Apply(
      backend, ProductInput::Normed(x, weights.ffn_norm.tensor, spec_.rms_eps),
      ProductResult::kReplaces, gate_up));
  return weights.down.Apply(backend, ProductInput::Gated(gate_up), ProductResult::kIsAdded, x);
}

// hidden = norm(x), logits = W_head norm(x), on the last stage. The first rows of x are those of
// the batch's `kept`.
absl::Status Transformer::Head(const Batch& batch, absl::Span<const int32_t> kept,
                               absl::Span<float> logits) {
  Backend* backend = stages_.back().backend.get();
  const Activations& act = stages_.back().act;
  const int64_t rows = kept.size();
  Tensor h = act.hidden.Rows(0, rows);
  RETURN_IF_ERROR(
      backend->RmsNorm(act.x.Rows(0, rows), weights_.output_norm.tensor, spec_.rms_eps, h));
  if (!batch.hidden_rows.empty()) {
    ASSIGN_OR_RETURN(const Tensor hidden, Pick(h, kept, batch.hidden_rows));
    RETURN_IF_ERROR(
        backend->Download(hidden.data, batch.hidden.data(), batch.hidden.size() * sizeof(float)));
  }
  if (batch.logit_rows.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(h, Pick(h, kept, batch.logit_rows));
  Tensor out(logits.data(), DType::kF32, h.rows, spec_.vocab);
  auto multiply = [&] {
    const Tensor bias = weights_.output_bias.tensor;
    return batch.wanted_logits.empty() || !bias.empty()
               ? backend->MatMul(weights_.head(), h, bias, out)
               : backend->MatMulColumns(weights_.head(), h, batch.wanted_logits, out);
  };
  if (backend->uses_host_memory()) return multiply();
  RETURN_IF_ERROR(ReserveLogits(h.rows));
  out.data = logits_buffer_.data();
  RETURN_IF_ERROR(multiply());
  return backend->Download(out.data, logits.data(), logits.size() * sizeof(float));
}

// Of the last stage's matrix whose rows are those of the batch's `kept`, the ones of `wanted`, a
// subset. Valid until the next call.
absl::StatusOr<Tensor> Transformer::Pick(Tensor from, absl::Span<const int32_t> kept,
                                         absl::Span<const int32_t> wanted) {
  if (wanted.size() == kept.size()) return from;
  std::vector<int32_t> rows;
  for (size_t i = 0; i < kept.size() && rows.size() < wanted.size(); ++i) {
    if (kept[i] == wanted[rows.size()]) rows.push_back(static_cast<int32_t>(i));
  }
  Stage& stage = stages_.back();
  Tensor picked(stage.act.gathered.data, DType::kF32, rows.size(), from.cols);
  RETURN_IF_ERROR(stage.backend->GatherRows(from, rows, picked));
  return picked;
}

// Moves the given rows of a matrix to its top, through `gathered`.
absl::Status Transformer::KeepRows(absl::Span<const int32_t> rows, Tensor from, Stage* stage) {
  Tensor gathered(stage->act.gathered.data, DType::kF32, rows.size(), from.cols);
  RETURN_IF_ERROR(stage->backend->GatherRows(from, rows, gathered));
  std::vector<int32_t> all(rows.size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int32_t>(i);
  return stage->backend->GatherRows(gathered, all, from.Rows(0, rows.size()));
}

// Where each token's K and V go, and its position's angles.
void Transformer::ComputeRope(const Batch& batch) {
  const int64_t pairs = spec_.rope.dim / 2;
  const int64_t tokens = batch.tokens.size();
  rope_host_.resize(tokens * spec_.rope.dim);
  slots_.resize(tokens);
  for (const SequenceSpan& sequence : batch.sequences) {
    for (int32_t t = 0; t < sequence.num_tokens; ++t) {
      const int64_t position = sequence.first_position + t;
      const int64_t row = sequence.first_row + t;
      slots_[row] = int64_t{sequence.blocks[position / kKvBlockTokens]} * kKvBlockTokens +
                    position % kKvBlockTokens;
      float* out = &rope_host_[row * spec_.rope.dim];
      for (int64_t i = 0; i < pairs; ++i) {
        const double angle = static_cast<double>(position) * frequencies_[i];
        out[2 * i] = static_cast<float>(spec_.rope.magnitude * std::cos(angle));
        out[2 * i + 1] = static_cast<float>(spec_.rope.magnitude * std::sin(angle));
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
  const int64_t q_cols = spec_.Widest([](const LayerSpec& l) { return l.attention.q_cols(); });
  const std::pair<Tensor*, int64_t> wants[] = {
      {&act.x, spec_.hidden},
      {&act.qkv, spec_.Widest([](const LayerSpec& l) { return l.attention.qkv_cols(); })},
      {&act.attention, q_cols},
      {&act.gate_up, spec_.Widest([](const LayerSpec& l) { return 2 * l.feed_forward.width; })},
      {&act.rope, spec_.rope.dim},
      {&act.gathered, std::max(spec_.hidden, q_cols)},
      {&act.hidden, spec_.hidden},
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

absl::Status Transformer::CopyKvBlock(int32_t from, int32_t to, int32_t tokens) {
  for (const Stage& stage : stages_) {
    for (const KvLayer& layer : stage.kv_cache.layers()) {
      RETURN_IF_ERROR(stage.backend->CopyKvBlock(layer, from, to, tokens));
    }
  }
  return absl::OkStatus();
}

absl::Status Transformer::ZeroKvBlock(int32_t block) {
  for (const Stage& stage : stages_) {
    for (const KvLayer& layer : stage.kv_cache.layers()) {
      RETURN_IF_ERROR(stage.backend->ZeroKvBlock(layer, block));
    }
  }
  return absl::OkStatus();
}

}  // namespace lm
