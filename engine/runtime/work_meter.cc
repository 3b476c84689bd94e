#include "engine/runtime/work_meter.h"

namespace lm {

StepWork WorkMeter::Count(const StepPlan& plan) {
  ++step_;
  StepWork step;
  double prefilled = 0, decoded = 0;
  bool head = false;
  for (const StepEntry& entry : plan.entries) {
    const auto guessed = static_cast<int32_t>(entry.sequence->guessed_points().size());
    const int32_t rows = entry.num_logits + entry.samples + guessed;  // through the head
    Work& work = entry.decode ? step.decode : step.prefill;
    (entry.decode ? decoded : prefilled) += entry.num_tokens;
    work.operations += 2.0 * static_cast<double>(cost_.body_parameters) * entry.num_tokens +
                       2.0 * static_cast<double>(cost_.head_parameters) * rows;
    work.bytes += CacheRead(*entry.sequence);
    work.positions += PositionsOf(entry.first, entry.first + entry.num_tokens);
    head |= rows > 0;
  }
  const double weights = static_cast<double>(cost_.body_bytes + (head ? cost_.head_bytes : 0));
  const double tokens = prefilled + decoded;
  if (tokens > 0) {
    step.prefill.bytes += weights * prefilled / tokens;
    step.decode.bytes += weights * decoded / tokens;
  }
  return step;
}

// Bytes of the sequence's state, and of the blocks of its context that no sequence before it in
// this step has.
double WorkMeter::CacheRead(const Sequence& sequence) {
  const BlockTable& table = sequence.block_table();
  double bytes = table.state < 0 ? 0 : static_cast<double>(cache_.state_bytes);
  for (size_t c = 0; c < table.blocks.size(); ++c) {
    for (int32_t block : table.blocks[c]) {
      if (block < 0 || read_in_[c][block] == step_) continue;
      read_in_[c][block] = step_;
      bytes += static_cast<double>(cache_.classes[c].block_bytes);
    }
  }
  return bytes;
}

}  // namespace lm
