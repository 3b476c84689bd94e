#include "extension/questions/yes_or_no.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/runtime/vote.h"

namespace lm {

AnswerConstraint YesOrNo() {
  return {AnswerConstraint::Kind::kChoices, R"(["yes","no","Yes","No"])"};
}

RowPrompt AskYesOrNo(absl::StatusOr<std::optional<std::string>> text, absl::string_view question,
                     std::shared_ptr<const CallOptions> options, std::optional<std::string> asked) {
  return {.prompt = std::move(text),
          .system = "You answer yes or no.",
          .options = std::move(options),
          .question = absl::StrCat("\n\n", question),
          .chooses = true,
          .asked = std::move(asked)};
}

double ProbabilityOfYes(const Generation& answer, int32_t votes) {
  double yes = 0, no = 0;
  for (const FirstChoice& choice : answer.first_choices) {
    const char first = choice.text[0];
    (first == 'y' || first == 'Y' ? yes : no) += std::exp(double{choice.logprob});
  }
  if (yes + no == 0) return 0.5;
  const double share = yes / (yes + no);
  return votes > 0 ? ShareOfVotes(share, votes) : share;
}

absl::Status CheckNoTie(const Generation& answer, int32_t votes) {
  const bool told = votes > 0 && !answer.first_choices.empty();
  if (!told || ProbabilityOfYes(answer, votes) != 0.5) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("a tie: of ", votes, " votes as many are a yes as a no"));
}

}  // namespace lm
