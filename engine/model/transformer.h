// Transformer: the forward pass that a ModelSpec describes, over any backend, or over several: each
// has a run of the layers, with their weights and KV cache, and hands its rows of the residual
// stream to the next.
#ifndef LM_ENGINE_MODEL_TRANSFORMER_H_
#define LM_ENGINE_MODEL_TRANSFORMER_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/backend/backend.h"
#include "engine/gguf/gguf_file.h"
#include "engine/model/kv_cache.h"
#include "engine/model/language_model.h"
#include "engine/model/model_spec.h"
#include "engine/model/weights.h"

namespace lm {

class Transformer final : public LanguageModel {
 public:
  // The layers [first, end) on a backend.
  struct Part {
    std::unique_ptr<Backend> backend;
    int64_t first = 0;
    int64_t end = 0;
  };

  // Loads the weights and reserves the KV cache. `parts` are in the order of the layers, and have
  // each once. Errors: those of LoadWeights and KvCache.
  static absl::StatusOr<std::unique_ptr<Transformer>> Load(const GgufFile& gguf,
                                                           const ModelSpec& spec, int64_t kv_bytes,
                                                           DType kv_dtype, std::vector<Part> parts);

  int32_t vocab_size() const override { return static_cast<int32_t>(spec_.vocab); }
  int32_t hidden_size() const override { return static_cast<int32_t>(spec_.hidden); }
  int32_t context_length() const override { return static_cast<int32_t>(spec_.context_length); }
  int32_t num_kv_blocks() const override { return stages_[0].kv_cache.layers()[0].num_blocks; }
  int64_t kv_block_bytes() const override;

  absl::Status Forward(const Batch& batch, const std::atomic<bool>& cancel,
                       absl::Span<float> logits) override;
  absl::Status CopyKvBlock(int32_t from, int32_t to, int32_t tokens) override;
  absl::Status ZeroKvBlock(int32_t block) override;

  const Weights& weights() const { return weights_; }

 private:
  // Activations of a step, each (rows, its own width) in F32; grown when a step needs more rows.
  struct Activations {
    Buffer buffer;
    int64_t capacity = 0;  // rows
    Tensor x;              // (T, hidden)             the residual stream
    // Each of these three is as wide as the widest layer's; a layer uses its first columns.
    Tensor qkv;        // (T, q_cols + 2 kv_cols)
    Tensor attention;  // (T, q_cols)
    Tensor gate_up;    // (T, 2 ffn)
    Tensor rope;       // (T, rope.dim)                cos and sin of each token's position
    Tensor gathered;   // (T, max(hidden, q_cols))     rows whose results are wanted
    Tensor hidden;     // (T, hidden)             the output norm of these
  };

  struct Stage {
    std::unique_ptr<Backend> backend;
    int64_t first = 0;
    int64_t end = 0;
    KvCache kv_cache = {};
    Activations act = {};
  };

  Transformer(const ModelSpec& spec, std::vector<Stage> stages, Weights weights);

  void ComputeRope(const Batch& batch);
  absl::Status ReserveLogits(int64_t rows);
  absl::Status Reserve(int64_t tokens, Stage* stage);
  absl::Status Hand(int64_t tokens, Stage* from, Stage* to);
  absl::Status RunLayers(const Batch& batch, absl::Span<const int32_t> kept,
                         const std::atomic<bool>& cancel, Stage* stage);
  absl::Status Attend(const AttentionSpec& spec, const LayerWeights& weights, const KvLayer& kv,
                      const Batch& batch, Stage* stage);
  absl::Status FeedForward(const FeedForwardSpec& spec, const LayerWeights& weights, int64_t rows,
                           Stage* stage);
  absl::Status KeepRows(absl::Span<const int32_t> rows, Tensor from, Stage* stage);
  absl::Status Head(const Batch& batch, absl::Span<const int32_t> kept, absl::Span<float> logits);
  absl::StatusOr<Tensor> Pick(Tensor from, absl::Span<const int32_t> kept,
                              absl::Span<const int32_t> wanted);

  const ModelSpec spec_;
  std::vector<Stage> stages_;  // before the weights, whose memory is the backends'
  const Weights weights_;
  const std::vector<double> frequencies_;  // (rope.dim / 2,) radians a position

  Buffer logits_buffer_;          // the last stage's
  int64_t logits_capacity_ = 0;   // rows
  std::vector<float> rope_host_;  // (T, rope.dim)
  std::vector<int64_t> slots_;    // (T,) where each token's K and V go
  std::vector<float> handed_;     // (T, hidden) between two stages
};

}  // namespace lm

#endif  // LM_ENGINE_MODEL_TRANSFORMER_H_
