// How probable each of several labels is as the model's answer, by its logits.
//
//   ASSIGN_OR_RETURN(auto scores, ScoreLabels(row, {"libs", "libdevel", "net"}, ask));
//
// The model is asked first with all labels before it; then, behind a token with which several
// begin, for those, and so on. A label's score is the product of what it has at each of these
// points, where the tokens that begin one of the labels share 1 by their probabilities; so the
// scores sum to 1, and where all labels differ in their first token one prompt tells them all.
// Behind the prompt, which is cached, each further point costs the tokens of the common beginning.
#ifndef LM_EXTENSION_QUESTIONS_LABEL_SCORES_H_
#define LM_EXTENSION_QUESTIONS_LABEL_SCORES_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "extension/batch/row_prompt.h"

namespace lm {

// Answers a row; nullopt where that is not to be known now.
using AskRow = absl::FunctionRef<absl::StatusOr<std::optional<Generation>>(RowPrompt row)>;

// In the order of the labels. `row` is the prompt that asks for one of them, whose options have no
// constraint yet. With a vote, the shares of the votes. An error is that of an answer; nullopt
// where one is not to be known.
absl::StatusOr<std::optional<std::vector<double>>> ScoreLabels(const RowPrompt& row,
                                                               absl::Span<const std::string> labels,
                                                               AskRow ask);

}  // namespace lm

#endif  // LM_EXTENSION_QUESTIONS_LABEL_SCORES_H_
