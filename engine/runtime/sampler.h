// Sampler picks a sequence's next token from its logits. What it picks depends on nothing but the
// logits, the options and the tokens before: not on the batch, the step or the time.
#ifndef LM_ENGINE_RUNTIME_SAMPLER_H_
#define LM_ENGINE_RUNTIME_SAMPLER_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/runtime/generation_options.h"

namespace lm {

// Tokens at the end of the context that repeat_penalty looks at.
inline constexpr int kRepeatWindow = 64;

// Immutable.
class Sampler {
 public:
  struct Candidate {
    double weight;  // a logit at first, then a probability that is not normalised
    int32_t token;
  };
  // Room to work in, so that 64 sequences need not keep a vocabulary's worth each.
  using Scratch = std::vector<Candidate>;

  // REQUIRES: the options are valid; the tokens of logit_bias are in the vocabulary; *options
  // outlives this.
  explicit Sampler(const GenerationOptions* options);

  // The token that follows `context` (prompt and answer so far). In this order:
  //   repeat_penalty  logit > 0 ? logit / penalty : logit * penalty, once for each token among the
  //                   last kRepeatWindow of the context
  //   logit_bias      added
  //   temperature     0: the greatest logit is the answer. Else p ~ exp(logit / temperature)
  //   top_k           the k most probable
  //   top_p           of those, the fewest most probable ones whose sum reaches top_p
  //   min_p           of those, the ones with at least min_p times the greatest probability
  // and one of the rest by the random number of (seed, context.size()). Ties go to the lower id.
  // Where `allowed` is not empty, it is a mask (see TokenTrie) and all other tokens do not exist.
  // Internal where a logit is not finite, of those that are looked at: where there is a mask, the
  // words of 64 in which it allows a token. REQUIRES: the mask has a bit set.
  absl::StatusOr<int32_t> Sample(absl::Span<const float> logits, absl::Span<const int32_t> context,
                                 absl::Span<const uint64_t> allowed, Scratch* scratch) const;

 private:
  void Adjust(absl::Span<const int32_t> context, Scratch* logits) const;
  int32_t Draw(uint64_t position, Scratch* candidates) const;

  const GenerationOptions& options_;
};

// Internal, naming the first bad one, where one of `count` logits from `first` on is NaN or
// infinite.
absl::Status CheckFinite(absl::Span<const float> logits, size_t first = 0,
                         size_t count = absl::Span<const float>::npos);

}  // namespace lm

#endif  // LM_ENGINE_RUNTIME_SAMPLER_H_
