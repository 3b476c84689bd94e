// The logarithm of a sum of exponentials: what logits are held against to be log-probabilities.
#ifndef LM_ENGINE_BACKEND_LOG_SUM_EXP_H_
#define LM_ENGINE_BACKEND_LOG_SUM_EXP_H_

#include <cstdint>

#include "absl/types/span.h"

namespace lm {

// log(sum of exp(logit)) over the tokens of the mask (bit i of word w is token 64 w + i; empty: all
// of them), to a few units of F32's last place of the sum; minus infinity of none. The same bits on
// every machine. REQUIRES: the logits are finite.
double LogSumExp(absl::Span<const float> logits, absl::Span<const uint64_t> mask);

}  // namespace lm

#endif  // LM_ENGINE_BACKEND_LOG_SUM_EXP_H_
