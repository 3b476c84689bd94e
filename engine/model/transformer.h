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
#include "engine/model/activations.h"
#include "engine/model/language_model.h"
#include "engine/model/layer_cache.h"
#include "engine/model/layer_run.h"
#include "engine/model/model_spec.h"
#include "engine/model/packed_file.h"
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

  // Loads the weights, takes the memory of devices that steps need (step_bounds.h), and reserves
  // the cache: kv_bytes, or for 0 half of what the devices have left, DefaultCacheBytes() of the
  // host's. `parts` are in the order of the layers, and have each of the model's own once; they are
  // one where spec.has_mtp. With `lays_out_later` LayOutMore reads weights and lays them out,
  // beside the first steps (LoadWeights). Errors: those of LoadWeights and PlanCache;
  // ResourceExhausted, with what was wanted and what there is, where a device has too little
  // memory.
  static absl::StatusOr<std::unique_ptr<Transformer>> Load(
      const GgufFile& gguf, const ModelSpec& spec, int64_t kv_bytes, DType kv_dtype,
      std::vector<Part> parts, absl::Span<const AdapterFile> adapters = {},
      PackCache* packs = nullptr, bool lays_out_later = false);

  int32_t vocab_size() const override { return static_cast<int32_t>(spec_.vocab); }
  int32_t hidden_size() const override { return static_cast<int32_t>(spec_.hidden); }
  int32_t context_length() const override { return static_cast<int32_t>(spec_.context_length); }
  const CacheShape& cache() const override { return cache_; }
  bool has_mtp() const override { return spec_.has_mtp; }
  bool queues_steps() const override;

  absl::Status Run(ModelStep step, const std::atomic<bool>& cancel, StepResults* results) override;
  absl::Status Begin(ModelStep step) override;
  absl::Status Pick(std::vector<SamplingRow> samples, std::vector<uint64_t> wanted_logits) override;
  absl::Status Await(const std::atomic<bool>& cancel, StepResults* results) override;

  absl::StatusOr<bool> LayOutMore(absl::Duration time) override;
  absl::StatusOr<bool> KeepWeights() override;
  absl::Span<char> BlockMemory(int32_t cache_class, int32_t block) override;
  absl::Span<char> StateMemory(int32_t slot) override;
  absl::StatusOr<std::vector<float>> ApplyHead(bool ranks, absl::Span<const float> pooled) override;

  const Weights& weights() const { return weights_; }

 private:
  struct Stage {
    std::unique_ptr<Backend> backend;
    int64_t first = 0;
    int64_t end = 0;
    LayerCache cache = {};
    Activations act = {};
  };

  Transformer(const ModelSpec& spec, const CacheShape& cache, std::vector<Stage> stages,
              Weights weights, std::shared_ptr<PackedFile> packed);

  // Runs the greatest step, and smaller ones, on devices with memory of their own, as Backend's
  // set_rehearsal says.
  absl::Status Rehearse(int32_t adapters);

  // Before weights are read, at least every few seconds: whether they are still there.
  absl::Status CheckWeights();

  void Prepare(ModelStep step);
  absl::Status ApplyCacheOps();
  absl::Status RunTokens(const std::atomic<bool>& cancel);
  absl::Status RunModel(const std::atomic<bool>& cancel, StepResults* results);
  absl::Status RunMtp(StepResults* results);
  absl::Status StoreMtp();
  void FindAngles(size_t rope, int32_t position, float* out) const;
  void FillRopes(StepTables* tables);
  void ListRows();
  void ListPositions();
  absl::Status ReserveLogits(int64_t rows);
  absl::Status Hand(Stage* from, Stage* to);
  absl::Status RunLayers(const std::atomic<bool>& cancel, Stage* stage);
  // Layer `index`, the run's. Of the last one only the rows that are kept are left.
  absl::Status RunHyperLayer(LayerRun& run, int64_t index, Stage* stage);
  absl::Status RunLayer(LayerRun& run, int64_t index, Stage* stage);
  absl::Status FinishEmbedding(Stage* stage);
  absl::Status PlaceLayerInputs(Stage* stage);
  absl::Status KeepRows(Tensor from, Stage* stage);
  LayerRun RunOf(int64_t layer, int64_t rows, Stage* stage) const;
  absl::Status Head(const DeviceNorm& norm, const WeightMatrix& head, StepResults* results);
  absl::StatusOr<Tensor> MakeLogits(const DeviceNorm& norm, const WeightMatrix& head,
                                    StepResults* results);
  absl::StatusOr<Tensor> Gather(Tensor from, int32_t list);

  const ModelSpec spec_;
  CacheShape cache_;
  std::vector<Stage> stages_;  // before the weights, whose memory is the backends'
  const Weights weights_;
  const std::shared_ptr<PackedFile> packed_;      // where they lie; or null
  std::vector<std::vector<double>> frequencies_;  // of each rope, (dim / 2,) radians a position
  // Of each rope, of runs of positions below kKnownPositions that have been seen.
  static constexpr int32_t kKnownPositions = 16384, kAnglesRun = 16;
  std::vector<std::vector<std::vector<float>>> known_angles_;

  bool rehearses_ = false;
  bool picked_ = false;                    // of a step that was begun, and not awaited
  ModelStep step_;                         // that was launched
  StepTables mtp_tables_;                  // of its rows with a next token
  std::vector<AdaptedRows> adapted_kept_;  // of the kept rows
  std::vector<int32_t> kept_tokens_;       // likewise
  std::vector<float> temperatures_;        // of its tokens
  int64_t kept_ = 0;                       // rows of it that something is wanted of
  int64_t head_rows_ = 0;                  // of those, the ones that logits are computed of
  Buffer logits_buffer_;                   // the last stage's
  int64_t logits_capacity_ = 0;            // rows
  Buffer head_scratch_;                    // of ApplyHead
  std::vector<float> handed_;              // (T, hidden) between two stages
};

}  // namespace lm

#endif  // LM_ENGINE_MODEL_TRANSFORMER_H_
