// Picking a sequence's next token from its logits. What is picked depends on nothing but the
// logits, the options and the tokens before: not on the batch, the step, the time or the device.
#ifndef LM_ENGINE_BACKEND_SAMPLING_H_
#define LM_ENGINE_BACKEND_SAMPLING_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/backend/draw_law.h"

namespace lm {

// Tokens at the end of the context that repeat_penalty looks at.
inline constexpr int kRepeatWindow = 64;

// In the order in which they are applied:
struct SamplingOptions {
  // logit > 0 ? logit / penalty : logit * penalty, once for each token among the last kRepeatWindow
  // of the context
  double repeat_penalty = 1;  // > 0
  // added, those of one token together; token and bias
  absl::Span<const std::pair<int32_t, double>> logit_bias = {};
  // 0: the greatest logit is the answer. Else p ~ exp(logit / temperature), as draw_law.h has it
  double temperature = 0;  // >= 0
  int32_t top_k = 0;       // the k most probable; 0: all
  double top_p = 1;        // of those, the fewest most probable ones whose sum reaches top_p
  double min_p = 0;        // of those, the ones with at least min_p times the greatest probability
  // and one of the rest, in the order of their ids, by the random bits of (seed, context.size()).
  // Ties go to the lower id.
  uint64_t seed = 0;
};

// A row of logits that a token is picked from. The views are the caller's.
struct SamplingRow {
  int32_t row = 0;  // of the logits, or of the step (ModelStep)
  SamplingOptions options = {};
  absl::Span<const int32_t> context = {};  // the tokens before: prompt and answer so far
  // A mask (token i: bit i % 64 of word i / 64) outside of which no token exists; empty: all do.
  // It has a bit set.
  absl::Span<const uint64_t> allowed = {};
};

// What picking needs in between, up to some 16 bytes a token of the vocabulary; nothing in it need
// be kept.
struct DrawScratch {
  std::vector<uint64_t> allowed;  // a word for each 64 tokens
  std::vector<float> greatest_of, sorted;
  std::vector<uint64_t> keys, keys_sorted;
};

// Whose logits the options change, in ascending order, each once.
std::vector<LogitAdjustment> AdjustmentsOf(const SamplingRow& row);

// Picks a token on the host. Internal where a logit is not finite, of those that are looked at:
// where there is a mask, the words of 64 in which it allows a token. REQUIRES: the options are in
// range; the tokens of logit_bias and the context are in the vocabulary. Unimplemented where it is
// drawn of more than kMostDrawnTokens.
absl::StatusOr<int32_t> SampleToken(absl::Span<const float> logits, const SamplingRow& row,
                                    DrawScratch* scratch);
inline absl::StatusOr<int32_t> SampleToken(absl::Span<const float> logits, const SamplingRow& row) {
  DrawScratch scratch;
  return SampleToken(logits, row, &scratch);
}

// By how much the logit of `token` is above the greatest of all others, in nats: how sure a greedy
// pick is. 0 where another one is as great or a logit is not finite, infinite where there is no
// other.
float MarginOf(absl::Span<const float> logits, int32_t token);

// Internal, naming the first bad one, where one of `count` logits from `first` on is NaN or
// infinite.
absl::Status CheckFinite(absl::Span<const float> logits, size_t first = 0,
                         size_t count = absl::Span<const float>::npos);

}  // namespace lm

#endif  // LM_ENGINE_BACKEND_SAMPLING_H_
