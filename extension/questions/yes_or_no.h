// A question about a text that is answered by yes or no: the logits of both are compared, and
// nothing is generated.
//
//   ASSIGN_OR_RETURN(options, Constrained(options, YesOrNo()));
//   queue.Push(AskYesOrNo(text, "Is it red? Answer yes or no.", options));
//   ...
//   const double yes = ProbabilityOfYes(queue.front().generation);
//
// The text comes first: several questions about one text read it once.
#ifndef LM_EXTENSION_QUESTIONS_YES_OR_NO_H_
#define LM_EXTENSION_QUESTIONS_YES_OR_NO_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "extension/batch/row_prompt.h"

namespace lm {

AnswerConstraint YesOrNo();

// REQUIRES: the options have that constraint. `asked` is what of the question the caller has
// written (RowPrompt::asked).
RowPrompt AskYesOrNo(absl::StatusOr<std::optional<std::string>> text, absl::string_view question,
                     std::shared_ptr<const CallOptions> options,
                     std::optional<std::string> asked = {});

// p(yes) / (p(yes) + p(no)), over all tokens that begin one of the words. With `votes` (0: none),
// the share of yes among those of them that say something. 0.5 where nothing is told, as in
// lm_explain.
double ProbabilityOfYes(const Generation& answer, int32_t votes = 0);

// FailedPrecondition where as many of the votes (0: none) are a yes as a no.
absl::Status CheckNoTie(const Generation& answer, int32_t votes);

// Whether a yes so probable is one: more than `threshold`, and any where that is 0.
inline bool IsYes(double probability, double threshold) {
  return probability > threshold || threshold == 0;
}

}  // namespace lm

#endif  // LM_EXTENSION_QUESTIONS_YES_OR_NO_H_
