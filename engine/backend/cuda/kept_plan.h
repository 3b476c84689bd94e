// KeptPlan: the plan of attention of one kind of layer, from step to step. Sequences that decode
// see a position more in each step, and mostly the same chunks: then the plan is what it was, but
// for where in the step's table their blocks begin.
#ifndef LM_ENGINE_BACKEND_CUDA_KEPT_PLAN_H_
#define LM_ENGINE_BACKEND_CUDA_KEPT_PLAN_H_

#include <cstdint>
#include <vector>

#include "engine/backend/cuda/attention_plan.h"
#include "engine/backend/step_tables.h"

namespace lm {

class KeptPlan {
 public:
  enum class Change {
    kNone,
    kPlaces,  // AttentionTile::first_block, of some tiles
    kAll,
  };

  explicit KeptPlan(const AttentionKind& kind) : kind_(kind) {}

  const AttentionKind& kind() const { return kind_; }
  // Makes the plan what PlanAttention makes of the step.
  Change Follow(const StepTables& step);
  const AttentionPlan& plan() const { return plan_; }

 private:
  bool SeesTheSameChunks(const StepTables& step) const;
  bool SharesTheSameChunks(const StepTables& step) const;

  const AttentionKind kind_;
  AttentionPlan plan_;
  // Of the step that it is of.
  std::vector<StepSequence> sequences_;
  std::vector<int32_t> blocks_;
};

}  // namespace lm

#endif  // LM_ENGINE_BACKEND_CUDA_KEPT_PLAN_H_
