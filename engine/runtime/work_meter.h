// WorkMeter counts what a step asks of the machine, for the shares of its ceilings in lm_stats.
#ifndef LM_ENGINE_RUNTIME_WORK_METER_H_
#define LM_ENGINE_RUNTIME_WORK_METER_H_

#include <cstdint>
#include <vector>

#include "engine/model/model.h"
#include "engine/runtime/engine_stats.h"
#include "engine/runtime/step_plan.h"

namespace lm {

// The two phases' parts. Both share one reading of the weights in a mixed step, by their tokens (as
// they share its time).
struct StepWork {
  Work prefill;
  Work decode;
};

// Not thread-safe.
class WorkMeter {
 public:
  WorkMeter(const ModelCost& cost, const CacheShape& cache) : cost_(cost), cache_(cache) {
    for (const CacheClass& c : cache.classes) read_in_.emplace_back(c.num_blocks);
  }

  // Call once a step. A KV block that several sequences share counts once.
  StepWork Count(const StepPlan& plan);

 private:
  double CacheRead(const Sequence& sequence);

  const ModelCost cost_;
  const CacheShape cache_;
  std::vector<std::vector<uint64_t>> read_in_;  // the last step that read a block of a class
  uint64_t step_ = 0;
};

}  // namespace lm

#endif  // LM_ENGINE_RUNTIME_WORK_METER_H_
