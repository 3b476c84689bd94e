#include "engine/runtime/work_meter.h"

namespace lm {

StepWork WorkMeter::Count(const StepPlan& plan) {
  ++step_;
  StepWork step;
  double prefilled = 0, decoded = 0;
  bool head = false;
  for (const StepEntry& entry : plan.entries) {
    Work& work = entry.decode ? step.decode : step.prefill;
    (entry.decode ? decoded : prefilled) += entry.num_tokens;
    work.operations += 2.0 * static_cast<double>(cost_.body_parameters) * entry.num_tokens +
                       2.0 * static_cast<double>(cost_.head_parameters) * entry.num_logits;
    work.bytes += BlocksRead(*entry.sequence) * static_cast<double>(kv_block_bytes_);
    head |= entry.num_logits > 0;
  }
  const double weights = static_cast<double>(cost_.body_bytes + (head ? cost_.head_bytes : 0));
  const double tokens = prefilled + decoded;
  if (tokens > 0) {
    step.prefill.bytes += weights * prefilled / tokens;
    step.decode.bytes += weights * decoded / tokens;
  }
  return step;
}

// Blocks of the sequence's context that no sequence before it in this step has.
double WorkMeter::BlocksRead(const Sequence& sequence) {
  double blocks = 0;
  for (int32_t block : sequence.block_table().blocks) {
    if (read_in_[block] == step_) continue;
    read_in_[block] = step_;
    ++blocks;
  }
  return blocks;
}

}  // namespace lm
