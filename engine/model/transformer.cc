#include "engine/model/transformer.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "engine/base/status_macros.h"

namespace lm {

absl::StatusOr<std::unique_ptr<Transformer>> Transformer::Load(const GgufFile& gguf,
                                                               const ModelConfig& config,
                                                               int64_t kv_bytes, DType kv_dtype,
                                                               std::unique_ptr<Backend> backend) {
  ASSIGN_OR_RETURN(Weights weights, LoadWeights(gguf, config, backend.get()));
  ASSIGN_OR_RETURN(KvCache kv_cache, KvCache::Create(config, kv_bytes, kv_dtype, backend.get()));
  return std::unique_ptr<Transformer>(
      new Transformer(config, std::move(backend), std::move(weights), std::move(kv_cache)));
}

Transformer::Transformer(const ModelConfig& config, std::unique_ptr<Backend> backend,
                         Weights weights, KvCache kv_cache)
    : config_(config),
      backend_(std::move(backend)),
      weights_(std::move(weights)),
      kv_cache_(std::move(kv_cache)) {
  for (int64_t i = 0; i < config_.rope_dim / 2; ++i) {
    double frequency = std::pow(config_.rope_base, -2.0 * i / config_.rope_dim);
    if (!weights_.rope_factors.empty()) frequency /= weights_.rope_factors[i];
    inverse_frequencies_.push_back(frequency / config_.rope_scale);
  }
}

absl::Status Transformer::Forward(const Batch& batch, const std::atomic<bool>& cancel,
                                  absl::Span<float> logits) {
  const int64_t tokens = batch.tokens.size();
  std::vector<int32_t> kept;  // rows that something is wanted of
  std::set_union(batch.logit_rows.begin(), batch.logit_rows.end(), batch.hidden_rows.begin(),
                 batch.hidden_rows.end(), std::back_inserter(kept));
  const int64_t wanted = kept.size();
  RETURN_IF_ERROR(Reserve(tokens, batch.logit_rows.size()));
  RETURN_IF_ERROR(UploadRope(batch));

  // x = embedding[tokens]
  RETURN_IF_ERROR(backend_->Embed(*weights_.embedding, batch.tokens, act_.x.Rows(0, tokens)));

  for (int64_t i = 0; i < config_.layers; ++i) {
    if (cancel.load(std::memory_order_relaxed)) {
      return absl::CancelledError("the generation was cancelled");
    }
    const LayerWeights& layer = weights_.layers[i];
    int64_t rows = tokens;
    // x += W_o attention(rope(W_qkv norm(x)))
    RETURN_IF_ERROR(Attend(layer, kv_cache_.layer(i), batch));
    if (i == config_.layers - 1 && wanted < tokens) {
      // Nobody reads the other rows after the last layer's keys and values are stored.
      if (wanted == 0) break;
      RETURN_IF_ERROR(KeepRows(kept, &act_.x));
      RETURN_IF_ERROR(KeepRows(kept, &act_.attention));
      rows = wanted;
    }
    RETURN_IF_ERROR(layer.attention_output.Apply(backend_.get(), act_.attention.Rows(0, rows),
                                                 act_.h.Rows(0, rows)));
    RETURN_IF_ERROR(backend_->Add(act_.x.Rows(0, rows), act_.h.Rows(0, rows)));
    // x += W_down swiglu(W_gate_up norm(x))
    RETURN_IF_ERROR(FeedForward(layer, rows));
  }
  if (wanted == 0) return backend_->Synchronize();
  return Head(batch, kept, logits);
}

// attention = attention(rope(W_qkv norm(x))), storing this layer's keys and values.
absl::Status Transformer::Attend(const LayerWeights& weights, const KvLayer& kv,
                                 const Batch& batch) {
  const int64_t tokens = batch.tokens.size();
  Tensor x = act_.x.Rows(0, tokens);
  Tensor h = act_.h.Rows(0, tokens);
  Tensor qkv = act_.qkv.Rows(0, tokens);
  RETURN_IF_ERROR(backend_->RmsNorm(x, weights.attention_norm.tensor, config_.rms_eps, h));
  RETURN_IF_ERROR(weights.qkv.Apply(backend_.get(), h, qkv));
  Tensor q = qkv.Cols(0, config_.q_cols());
  Tensor k = qkv.Cols(config_.q_cols(), config_.kv_cols());
  Tensor v = qkv.Cols(config_.q_cols() + config_.kv_cols(), config_.kv_cols());
  RETURN_IF_ERROR(backend_->RopeAndStoreKv(q, k, v, act_.rope.Rows(0, tokens), config_.rope_pairing,
                                           slots_, kv));
  const float scale = 1.0f / std::sqrt(static_cast<float>(config_.head_dim));
  return backend_->Attention(q, batch.sequences, kv, scale, act_.attention.Rows(0, tokens));
}

absl::Status Transformer::FeedForward(const LayerWeights& weights, int64_t rows) {
  Tensor x = act_.x.Rows(0, rows);
  Tensor h = act_.h.Rows(0, rows);
  Tensor gate_up = act_.gate_up.Rows(0, rows);
  Tensor ffn = act_.ffn.Rows(0, rows);
  RETURN_IF_ERROR(backend_->RmsNorm(x, weights.ffn_norm.tensor, config_.rms_eps, h));
  RETURN_IF_ERROR(weights.gate_up.Apply(backend_.get(), h, gate_up));
  RETURN_IF_ERROR(
      backend_->SwiGlu(gate_up.Cols(0, config_.ffn), gate_up.Cols(config_.ffn, config_.ffn), ffn));
  RETURN_IF_ERROR(weights.down.Apply(backend_.get(), ffn, h));
  return backend_->Add(x, h);
}

// hidden = norm(x), logits = W_head norm(x). The first rows of x are those of the batch's `kept`.
absl::Status Transformer::Head(const Batch& batch, absl::Span<const int32_t> kept,
                               absl::Span<float> logits) {
  const int64_t rows = kept.size();
  Tensor h = act_.h.Rows(0, rows);
  RETURN_IF_ERROR(
      backend_->RmsNorm(act_.x.Rows(0, rows), weights_.output_norm.tensor, config_.rms_eps, h));
  if (!batch.hidden_rows.empty()) {
    ASSIGN_OR_RETURN(const Tensor hidden, Pick(h, kept, batch.hidden_rows));
    RETURN_IF_ERROR(
        backend_->Download(hidden.data, batch.hidden.data(), batch.hidden.size() * sizeof(float)));
  }
  if (batch.logit_rows.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(h, Pick(h, kept, batch.logit_rows));
  Tensor out(logits_buffer_.data(), DType::kF32, h.rows, config_.vocab);
  RETURN_IF_ERROR(backend_->MatMul(weights_.head(), h, /*bias=*/{}, out));
  return backend_->Download(out.data, logits.data(), logits.size() * sizeof(float));
}

// Of a matrix whose rows are those of the batch's `kept`, the ones of `wanted`, a subset. Valid
// until the next call.
absl::StatusOr<Tensor> Transformer::Pick(Tensor from, absl::Span<const int32_t> kept,
                                         absl::Span<const int32_t> wanted) {
  if (wanted.size() == kept.size()) return from;
  std::vector<int32_t> rows;
  for (size_t i = 0; i < kept.size() && rows.size() < wanted.size(); ++i) {
    if (kept[i] == wanted[rows.size()]) rows.push_back(static_cast<int32_t>(i));
  }
  Tensor picked(act_.gathered.data, DType::kF32, rows.size(), from.cols);
  RETURN_IF_ERROR(backend_->GatherRows(from, rows, picked));
  return picked;
}

// Moves the given rows of a matrix to its top. (Through `gathered`: the two are exchanged.)
absl::Status Transformer::KeepRows(absl::Span<const int32_t> rows, Tensor* from) {
  Tensor gathered(act_.gathered.data, DType::kF32, rows.size(), from->cols);
  RETURN_IF_ERROR(backend_->GatherRows(*from, rows, gathered));
  std::vector<int32_t> all(rows.size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int32_t>(i);
  return backend_->GatherRows(gathered, all, from->Rows(0, rows.size()));
}

absl::Status Transformer::UploadRope(const Batch& batch) {
  const int64_t pairs = config_.rope_dim / 2;
  const int64_t tokens = batch.tokens.size();
  rope_host_.resize(tokens * config_.rope_dim);
  slots_.resize(tokens);
  for (const SequenceSpan& sequence : batch.sequences) {
    for (int32_t t = 0; t < sequence.num_tokens; ++t) {
      const int64_t position = sequence.first_position + t;
      const int64_t row = sequence.first_row + t;
      slots_[row] = int64_t{sequence.blocks[position / kKvBlockTokens]} * kKvBlockTokens +
                    position % kKvBlockTokens;
      float* out = &rope_host_[row * config_.rope_dim];
      for (int64_t i = 0; i < pairs; ++i) {
        double angle = position * inverse_frequencies_[i];
        out[2 * i] = static_cast<float>(std::cos(angle));
        out[2 * i + 1] = static_cast<float>(std::sin(angle));
      }
    }
  }
  return backend_->Upload(rope_host_.data(), act_.rope.data, rope_host_.size() * sizeof(float));
}

absl::Status Transformer::Reserve(int64_t tokens, int64_t logit_rows) {
  if (tokens > act_.capacity) {
    const int64_t rows = std::max(tokens, 2 * act_.capacity);
    const std::pair<Tensor*, int64_t> wants[] = {
        {&act_.x, config_.hidden},
        {&act_.h, config_.hidden},
        {&act_.qkv, config_.q_cols() + 2 * config_.kv_cols()},
        {&act_.attention, config_.q_cols()},
        {&act_.gate_up, 2 * config_.ffn},
        {&act_.ffn, config_.ffn},
        {&act_.rope, config_.rope_dim},
        {&act_.gathered, std::max(config_.hidden, config_.q_cols())},
    };
    constexpr int64_t kAlignment = 64;
    int64_t bytes = 0;
    for (const auto& [tensor, cols] : wants) bytes += rows * cols * sizeof(float) + kAlignment;
    Activations fresh;
    ASSIGN_OR_RETURN(fresh.buffer, backend_->Allocate(bytes));
    act_.buffer = std::move(fresh.buffer);
    act_.capacity = rows;
    char* next = static_cast<char*>(act_.buffer.data());
    for (const auto& [tensor, cols] : wants) {
      *tensor = Tensor(next, DType::kF32, rows, cols);
      int64_t size = rows * cols * sizeof(float);
      next += (size + kAlignment - 1) / kAlignment * kAlignment;
    }
  }
  if (logit_rows > logits_capacity_) {
    ASSIGN_OR_RETURN(logits_buffer_,
                     backend_->Allocate(logit_rows * config_.vocab * sizeof(float)));
    logits_capacity_ = logit_rows;
  }
  return absl::OkStatus();
}

absl::Status Transformer::CopyKvBlock(int32_t from, int32_t to, int32_t tokens) {
  for (int64_t i = 0; i < config_.layers; ++i) {
    RETURN_IF_ERROR(backend_->CopyKvBlock(kv_cache_.layer(i), from, to, tokens));
  }
  return absl::OkStatus();
}

absl::Status Transformer::ZeroKvBlock(int32_t block) {
  for (int64_t i = 0; i < config_.layers; ++i) {
    RETURN_IF_ERROR(backend_->ZeroKvBlock(kv_cache_.layer(i), block));
  }
  return absl::OkStatus();
}

}  // namespace lm
