// MtpDrafter: a ModelDrafter that asks the layer for it which the model's own file has (mtp.h). It
// takes the place of a draft model, and has no cache of its own.
#ifndef LM_ENGINE_RUNTIME_MTP_DRAFTER_H_
#define LM_ENGINE_RUNTIME_MTP_DRAFTER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "engine/model/language_model.h"
#include "engine/runtime/drafter.h"
#include "engine/runtime/step_costs.h"

namespace lm {

// Not thread-safe.
class MtpDrafter final : public ModelDrafter {
 public:
  // REQUIRES: model->has_mtp(); it and *cancel outlive this.
  MtpDrafter(LanguageModel* model, const std::atomic<bool>* cancel)
      : model_(*model), cancel_(*cancel) {}

  // A row of which the hidden state before its last token was not observed has no draft, and none
  // is longer than its blocks have room for.
  void Propose(absl::Span<DraftRow> rows, absl::FunctionRef<bool(const DraftRow&)> worth,
               std::vector<CacheOp>* cache_ops) override;
  bool observes() const override { return true; }
  void Observe(int32_t position, absl::Span<const float> hidden,
               std::unique_ptr<DraftMemory>* memory) const override;
  double StepSeconds(int32_t rows) const override {
    return costs_.Seconds(rows, /*token_seconds=*/0);
  }

 private:
  struct Observed;
  struct Active {
    DraftRow* row = nullptr;
    int32_t position = 0;  // of the hidden state
    int32_t token = 0;     // behind it
    std::vector<float> hidden = {};
    int32_t most = 0;  // tokens that it may guess
  };
  absl::Status Step(absl::Span<Active> rows, std::vector<CacheOp>* cache_ops);

  LanguageModel& model_;
  const std::atomic<bool>& cancel_;
  StepCosts costs_;
  StepResults results_;
};

}  // namespace lm

#endif  // LM_ENGINE_RUNTIME_MTP_DRAFTER_H_
