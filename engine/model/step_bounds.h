// What a step may be at most. An engine keeps within it, and so memory for the greatest step can be
// taken when a model is loaded.
#ifndef LM_ENGINE_MODEL_STEP_BOUNDS_H_
#define LM_ENGINE_MODEL_STEP_BOUNDS_H_

#include <algorithm>
#include <cstdint>

namespace lm {

// Token budget of a step. (A sequence that is computed in one step may begin with the last of it.)
inline constexpr int32_t kMostStepTokens = 512;
// Sequences that run at once; interactive ones may be some more.
inline constexpr int32_t kMostSequences = 64;
inline constexpr int32_t kInteractiveSeats = 8;

// Rows of a step whose logits are wanted beside those that `sequences` sequences sample: of prompts
// that are scored, and of guesses. Of the memory for logits they have what the others leave.
inline int32_t MostScoredRows(int32_t vocab, int32_t sequences, int32_t step_tokens) {
  constexpr int64_t kMaxLogitBytes = 64 << 20;
  constexpr int64_t kLeast = 16;  // of a vocabulary of any size
  const int64_t rows = kMaxLogitBytes / (int64_t{vocab} * int64_t{sizeof(float)});
  return static_cast<int32_t>(
      std::clamp<int64_t>(rows - sequences, std::min<int64_t>(kLeast, step_tokens), step_tokens));
}

}  // namespace lm

#endif  // LM_ENGINE_MODEL_STEP_BOUNDS_H_
