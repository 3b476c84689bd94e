// Transformer: a LanguageModel that walks the layers of a ModelSpec (model_spec.h has the
// formulas).
#ifndef LM_ENGINE_MODEL_TRANSFORMER_H_
#define LM_ENGINE_MODEL_TRANSFORMER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/backend/backend.h"
#include "engine/gguf/gguf_file.h"
#include "engine/model/language_model.h"
#include "engine/model/layer_cache.h"
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

  // Loads the weights and reserves the cache. `parts` are in the order of the layers, and have each
  // once. Errors: those of LoadWeights and PlanCache.
  static absl::StatusOr<std::unique_ptr<Transformer>> Load(const GgufFile& gguf,
                                                           const ModelSpec& spec, int64_t kv_bytes,
                                                           DType kv_dtype, std::vector<Part> parts);

  int32_t vocab_size() const override { return static_cast<int32_t>(spec_.vocab); }
  int32_t hidden_size() const override { return static_cast<int32_t>(spec_.hidden); }
  int32_t context_length() const override { return static_cast<int32_t>(spec_.context_length); }
  const CacheShape& cache() const override { return cache_; }

  absl::Status Launch(ModelStep step) override;
  absl::Status Await(const std::atomic<bool>& cancel, StepResults* results) override;

  const Weights& weights() const { return weights_; }

 private:
  // Activations of a step, each (rows, its own width) in F32; grown when a step needs more rows.
  struct Activations {
    Buffer buffer;
    int64_t capacity = 0;  // rows
    Tensor x;              // (T, hidden)             the residual stream
    // Each of these three is as wide as the widest layer's; a layer uses its first columns.
    Tensor mixer_input;  // (T, MixerInputCols)
    Tensor mixed;        // (T, MixerOutputCols, or what a recurrent layer convolves)
    Tensor gate_up;      // (T, what a feed-forward's first product gives)
    Tensor gathered;     // (T, max(hidden, mixed))  rows whose results are wanted
    Tensor hidden;       // (T, hidden)              the output norm of these; what is to be normed
    Tensor temperature;  // (T, 1)
    // Of latent attention: q', q, k, and what attention gives.
    Tensor latent_q, latent_query, latent_key, latent_out;
    // Of mixtures of experts.
    Tensor normed, shared;  // (T, hidden)
    Tensor router;          // (T, experts + 1)
    Tensor slots;           // (T, chosen * hidden)  of each slot its row, then its result
    Tensor slot_gate_up;    // (T, chosen * what an expert's first product gives)
  };

  struct Stage {
    std::unique_ptr<Backend> backend;
    int64_t first = 0;
    int64_t end = 0;
    LayerCache cache = {};
    Activations act = {};
  };

  Transformer(const ModelSpec& spec, const CacheShape& cache, std::vector<Stage> stages,
              Weights weights);

  absl::Status ApplyCacheOps();
  void FillRopes();
  void ListRows();
  void ListPositions();
  absl::Status ReserveLogits(int64_t rows);
  absl::Status Reserve(int64_t tokens, Stage* stage);
  absl::Status Hand(Stage* from, Stage* to);
  absl::Status RunLayers(const std::atomic<bool>& cancel, Stage* stage);
  absl::StatusOr<Tensor> Mix(int64_t index, Stage* stage);
  absl::StatusOr<Tensor> Attend(const AttentionSpec& spec, const LayerWeights& weights,
                                const KvLayer& kv, Stage* stage);
  absl::StatusOr<Tensor> ApplyDeltaNet(const DeltaNetSpec& spec, const LayerWeights& weights,
                                       const StateLayer& conv, const StateLayer& rule,
                                       Stage* stage);
  absl::StatusOr<Tensor> AttendLatent(const AttentionSpec& spec, const LayerWeights& weights,
                                      const KvLayer& kv, Stage* stage);
  absl::StatusOr<Tensor> ApplyStateSpace(const StateSpaceSpec& spec, const LayerWeights& weights,
                                         const StateLayer& conv, const StateLayer& rule,
                                         Stage* stage);
  absl::StatusOr<Tensor> ApplyShortConv(const ShortConvSpec& spec, const LayerWeights& weights,
                                        const StateLayer& conv, Stage* stage);
  absl::Status FeedForward(const LayerSpec& spec, const LayerWeights& weights, int64_t rows,
                           Stage* stage);
  absl::StatusOr<Tensor> MixExperts(const FeedForwardSpec& spec, const LayerWeights& weights,
                                    int64_t rows, Stage* stage);
  absl::Status AddToResidual(const Projection& projection, const ProductInput& input,
                             const DeviceNorm& post_norm, float scale, Stage* stage);
  absl::Status PlacePositions(Stage* stage);
  absl::Status KeepRows(Tensor from, Stage* stage);
  absl::Status Head(StepResults* results);
  absl::StatusOr<Tensor> Pick(Tensor from, int32_t list);

  const ModelSpec spec_;
  const CacheShape cache_;
  std::vector<Stage> stages_;  // before the weights, whose memory is the backends'
  const Weights weights_;
  std::vector<std::vector<double>> frequencies_;  // of each rope, (dim / 2,) radians a position

  ModelStep step_;                   // that was launched
  std::vector<float> temperatures_;  // of its tokens
  ExpertRoutes routes_;              // of the layer that runs
  int64_t kept_ = 0;                 // rows of it that something is wanted of
  int64_t head_rows_ = 0;            // of those, the ones that logits are computed of
  Buffer logits_buffer_;             // the last stage's
  int64_t logits_capacity_ = 0;      // rows
  std::vector<float> handed_;        // (T, hidden) between two stages
};

}  // namespace lm

#endif  // LM_ENGINE_MODEL_TRANSFORMER_H_
