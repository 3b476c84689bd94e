#include "extension/questions/relevance.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "extension/questions/constrained_options.h"
#include "extension/questions/yes_or_no.h"

namespace lm {

absl::StatusOr<Relevance> Relevance::Create(std::string query, CallOptions options) {
  Relevance relevance;
  relevance.query_ = std::move(query);
  relevance.ranks_ = !CheckGenerates(options.generator().info()).ok();
  if (relevance.ranks_) {
    RETURN_IF_ERROR(CheckRanks(options.generator().info()));
    relevance.options_ = std::make_shared<const CallOptions>(std::move(options));
  } else {
    ASSIGN_OR_RETURN(relevance.options_, Constrained(std::move(options), YesOrNo()));
  }
  return relevance;
}

RowPrompt Relevance::Row(absl::StatusOr<std::optional<std::string>> text) const {
  if (ranks_) {
    return {.prompt = std::move(text),
            .options = options_,
            .question = query_,
            .embed = EmbedTask{.ranks = true}};
  }
  return AskYesOrNo(
      std::move(text),
      absl::StrCat("Is it what this search looks for: ", query_, "? Answer yes or no."), options_);
}

double Relevance::Score(const Generation& answer) const {
  if (!ranks_) return ProbabilityOfYes(answer, options_->generation.vote);
  // Of several labels the model has made probabilities.
  const double score = answer.embedding[0];
  return answer.embedding.size() == 1 ? 1 / (1 + std::exp(-score)) : score;
}

absl::StatusOr<Comparison> Comparison::Create(std::string query, CallOptions options) {
  Comparison comparison;
  comparison.query_ = std::move(query);
  ASSIGN_OR_RETURN(
      comparison.options_,
      Constrained(std::move(options), {AnswerConstraint::Kind::kChoices, R"(["A","B"])"}));
  return comparison;
}

RowPrompt Comparison::Row(absl::string_view a, absl::string_view b) const {
  return {.prompt = absl::StrCat("A: ", a, "\n\nB: ", b),
          .system = "You answer A or B.",
          .options = options_,
          .question = absl::StrCat("\n\nWhich of them is rather what this search looks for: ",
                                   query_, "? Answer A or B."),
          .chooses = true};
}

double Comparison::Score(const Generation& answer) const {
  double a = 0, b = 0;
  for (const FirstChoice& choice : answer.first_choices) {
    (choice.text == "A" ? a : b) += std::exp(double{choice.logprob});
  }
  return a + b > 0 ? a / (a + b) : 0.5;
}

}  // namespace lm
