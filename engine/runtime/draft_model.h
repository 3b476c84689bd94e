// DraftModel: a ModelDrafter that asks a smaller model of the same vocabulary, of which each may
// have padding that the other lacks, what comes next. It has a cache of its own, in which prefixes
// are shared as in the large one's.
#ifndef LM_ENGINE_RUNTIME_DRAFT_MODEL_H_
#define LM_ENGINE_RUNTIME_DRAFT_MODEL_H_

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/model/language_model.h"
#include "engine/runtime/block_manager.h"
#include "engine/runtime/drafter.h"
#include "engine/runtime/step_costs.h"

namespace lm {

// Not thread-safe.
class DraftModel final : public ModelDrafter {
 public:
  // Of a call: what a row lacks beyond that is computed by the next ones, and it has no draft yet.
  static constexpr int32_t kStepTokens = 512;

  // `vocab`: how many tokens the model that it guesses for has. None that one of the two lacks is
  // proposed, and a text that has one has no draft.
  // REQUIRES: *model is not recurrent; it and *cancel outlive this, and this the memories it fills.
  DraftModel(LanguageModel* model, int32_t vocab, const std::atomic<bool>* cancel);

  void Propose(absl::Span<DraftRow> rows, absl::FunctionRef<bool(const DraftRow&)> worth,
               std::vector<CacheOp>* cache_ops) override;
  void Forget(absl::string_view salt) override { blocks_.Forget(salt); }
  double StepSeconds(int32_t rows) const override {
    return costs_.Seconds(rows, /*token_seconds=*/0);
  }

 private:
  struct RowCache;
  struct Active {
    DraftRow* row = nullptr;
    RowCache* cache = nullptr;
    std::vector<int32_t> next = {};  // tokens to be computed
    bool samples = false;
  };
  bool Begin(DraftRow* row, int32_t budget, Active* active);
  absl::Status Step(std::vector<Active>* rows);
  void GiveUp(const std::vector<Active>& rows);

  LanguageModel& model_;
  const int32_t common_vocab_;
  const std::atomic<bool>& cancel_;
  BlockManager blocks_;
  StepCosts costs_;
  StepResults results_;
};

}  // namespace lm

#endif  // LM_ENGINE_RUNTIME_DRAFT_MODEL_H_
