// DraftModel: a Drafter that asks a smaller model of the same vocabulary what comes next. It has a
// cache of its own, in which prefixes are shared as in the large one's.
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

// Its drafts are what it finds most probable; of kind kFirstKind the first token of each. Not
// thread-safe.
class DraftModel final : public Drafter {
 public:
  static constexpr int32_t kFirstKind = 17;  // behind those of PromptLookup
  static constexpr int32_t kMostGuessed = 8;
  // Of a call: what a row lacks beyond that is computed by the next ones, and it has no draft yet.
  static constexpr int32_t kStepTokens = 512;

  // REQUIRES: *model is not recurrent; it and *cancel outlive this, and this the memories it fills.
  DraftModel(LanguageModel* model, const std::atomic<bool>* cancel);

  void Propose(absl::Span<DraftRow> rows) override;
  void Learn(absl::string_view, absl::Span<const int32_t>, int32_t) override {}

  // What a token more of so many rows takes; 0: not known.
  double StepSeconds(int32_t rows) const { return costs_.Seconds(rows, /*token_seconds=*/0); }

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
  void Forget(const std::vector<Active>& rows);

  LanguageModel& model_;
  const std::atomic<bool>& cancel_;
  BlockManager blocks_;
  StepCosts costs_;
  StepResults results_;
};

}  // namespace lm

#endif  // LM_ENGINE_RUNTIME_DRAFT_MODEL_H_
