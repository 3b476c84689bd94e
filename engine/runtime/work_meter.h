// WorkMeter counts what a step asks of the machine, for the shares of its ceilings in lm_stats.
#ifndef LM_ENGINE_RUNTIME_WORK_METER_H_
#define LM_ENGINE_RUNTIME_WORK_METER_H_

#include <cstdint>
#include <vector>

#include "engine/model/model.h"
#include "engine/runtime/engine_stats.h"
#include "engine/runtime/scheduler.h"

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
  WorkMeter(const ModelCost& cost, int32_t num_kv_blocks, int64_t kv_block_bytes)
      : cost_(cost), kv_block_bytes_(kv_block_bytes), read_in_(num_kv_blocks) {}

  // Call once a step. A KV block that several sequences share counts once.
  StepWork Count(const StepPlan& plan);

 private:
  double BlocksRead(const Sequence& sequence);

  const ModelCost cost_;
  const int64_t kv_block_bytes_;
  std::vector<uint64_t> read_in_;  // the last step that read a block
  uint64_t step_ = 0;
};

}  // namespace lm

#endif  // LM_ENGINE_RUNTIME_WORK_METER_H_
