// StepPacer: how many tokens of prompts fit into a step of a given length, from the steps before.
#ifndef LM_ENGINE_RUNTIME_STEP_PACER_H_
#define LM_ENGINE_RUNTIME_STEP_PACER_H_

#include <cstdint>

#include "absl/time/time.h"

namespace lm {

// Not thread-safe. It decides when things are computed, never what comes out.
class StepPacer {
 public:
  // A step took so long that computed `prompt_tokens` tokens of prompts, beside those of decoding
  // sequences.
  void Record(int32_t prompt_tokens, absl::Duration took);

  // The tokens of prompts that a step of `target` has room for beside decoding sequences: between
  // kLeast, so that prompts always go on, and `most`, which is also the answer while nothing is
  // known.
  int32_t PromptTokens(absl::Duration target, int32_t most) const;

  // What a token of a prompt adds to a step; 0: not known yet.
  double token_seconds() const { return token_seconds_; }

  static constexpr int32_t kLeast = 32;

 private:
  double decode_seconds_ = 0;  // a step without prompts; 0: none seen
  double token_seconds_ = 0;   // what a token of a prompt adds; 0: none seen
};

}  // namespace lm

#endif  // LM_ENGINE_RUNTIME_STEP_PACER_H_
