#include "engine/runtime/remembered_answer.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "engine/grammar/grammar_matcher.h"
#include "engine/runtime/answer_text.h"
#include "engine/runtime/constraint_cache.h"
#include "engine/runtime/engine.h"
#include "engine/runtime/reasoning.h"
#include "engine/text/tokenizer.h"

namespace lm {
namespace {

constexpr double kProbabilityRounding = 1e-3;  // of the sum of all probabilities

bool EndsWhereItSays(const Engine& engine, const RequestSpec& spec,
                     const RememberedAnswer& answer) {
  const int64_t tokens = static_cast<int64_t>(answer.tokens.size());
  const int64_t prompt = static_cast<int64_t>(spec.prompt.size());
  const int64_t together = int64_t{answer.tokens_out} + prompt;
  if (answer.tokens_in != prompt || together > engine.max_sequence_tokens()) return false;
  // The reasoning is among the tokens of a free answer, and beside those of another. As much white
  // space as an answer may have can come before it.
  const bool constrained = IsConstrained(spec.options);
  const int64_t most = MostAnswerTokens(spec.options);
  const int64_t reasoning = Reasoning::MostTokens(spec);
  const int64_t before = reasoning > 0 ? reasoning + most : 0;
  if (tokens > most + (constrained ? 0 : before)) return false;
  const int64_t others = answer.tokens_out - tokens;
  if (others < 0 || others > (constrained ? reasoning : 0)) return false;
  // Led to its end, it may be there before the limit.
  const bool completed = spec.options.on_length == OnLength::kComplete && constrained;
  switch (answer.finish) {
    case FinishReason::kStop:
      return true;
    case FinishReason::kLength:
      return tokens == most || completed || (reasoning > 0 && tokens >= most);
    case FinishReason::kContext:
      return together == engine.max_sequence_tokens() || completed;
    case FinishReason::kError:
      break;
  }
  return false;
}

// The text is made of the tokens as Sequence makes it.
bool SpellsItsText(const Tokenizer& tokenizer, const RequestSpec& spec,
                   const RememberedAnswer& answer) {
  AnswerText made(&tokenizer, spec);
  std::string text;
  for (int32_t token : answer.tokens) {
    if (token < 0 || token >= tokenizer.size()) return false;
    if (tokenizer.IsEndOfGeneration(token) || !tokenizer.IsSayable(token)) return false;
    if (made.stopped()) return false;
    made.Append(token, &text);
  }
  if (made.stopped() && answer.finish != FinishReason::kStop) return false;
  made.Finish(&text);
  if (!answer.tokens.empty() && made.LacksAnswer(answer.finish)) return false;
  return text == answer.text;
}

// `constraint` is null where there is none.
bool FollowsConstraint(const Tokenizer& tokenizer, const CompiledConstraint* constraint,
                       const RememberedAnswer& answer) {
  if (constraint == nullptr) return true;
  const std::vector<int32_t>& start = constraint->start;
  const std::vector<int32_t>& tokens = answer.tokens;
  if (tokens.size() < start.size() || !std::equal(start.begin(), start.end(), tokens.begin())) {
    return false;
  }
  GrammarMatcher matcher = constraint->begin;
  for (size_t i = start.size(); i < tokens.size(); ++i) {
    const absl::string_view bytes = tokenizer.TokenBytes(tokens[i]);
    if (bytes.empty() || !matcher.AcceptBytes(bytes).ok()) return false;
  }
  return matcher.CanEnd();
}

bool HasItsChoices(const Tokenizer& tokenizer, const RequestSpec& spec,
                   const CompiledConstraint* constraint, const RememberedAnswer& answer) {
  const std::vector<FirstChoice>& choices = answer.first_choices;
  if (spec.wants_probability) {
    return choices.size() == 1 && choices[0].text == answer.text &&
           std::isfinite(choices[0].logprob) && choices[0].logprob <= 0;
  }
  if (!spec.wants_first_choices) return choices.empty();
  // There are none where the model was not asked at all.
  const absl::Span<const int32_t> start =
      constraint != nullptr ? constraint->start : absl::Span<const int32_t>();
  if (choices.empty()) return answer.tokens.size() == start.size();
  std::string given;
  for (const int32_t token : start) absl::StrAppend(&given, tokenizer.TokenBytes(token));
  const int32_t vocab_size = tokenizer.size();
  std::vector<uint64_t> allowed((vocab_size + 63) / 64, ~uint64_t{0});
  if (constraint != nullptr) {
    GrammarMatcher matcher = constraint->begin;
    allowed.assign(matcher.mask_words(), 0);
    if (!matcher.FillMask(absl::MakeSpan(allowed)).ok()) return false;
  }
  size_t at = 0;
  double sum = 0;
  for (int32_t token = 0; token < vocab_size; ++token) {
    const size_t word = token / 64;
    if (word >= allowed.size() || (allowed[word] >> (token % 64) & 1) == 0) continue;
    if (!tokenizer.IsSayable(token)) continue;
    if (at == choices.size()) return false;
    const absl::string_view said = tokenizer.TokenBytes(token);
    absl::string_view rest = choices[at].text;
    if (!said.empty() && !absl::ConsumePrefix(&rest, given)) return false;
    if (rest != said) return false;
    const float logprob = choices[at].logprob;
    if (!std::isfinite(logprob) || logprob > 0) return false;
    sum += std::exp(double{logprob});
    ++at;
  }
  return at == choices.size() && sum <= 1 + kProbabilityRounding;
}

}  // namespace

int64_t RememberedAnswer::bytes() const {
  size_t choices = first_choices.size() * sizeof(FirstChoice);
  for (const FirstChoice& choice : first_choices) choices += choice.text.size();
  return static_cast<int64_t>(sizeof(RememberedAnswer) + text.size() +
                              tokens.size() * sizeof(int32_t) + choices +
                              embedding.size() * sizeof(float));
}

bool CanBeAnswer(const Engine& engine, const RequestSpec& spec, const RememberedAnswer& answer) {
  if (!EndsWhereItSays(engine, spec, answer)) return false;
  const Tokenizer& tokenizer = engine.model().tokenizer();
  if (!SpellsItsText(tokenizer, spec, answer)) return false;
  const absl::StatusOr<std::shared_ptr<const CompiledConstraint>> constraint =
      engine.CompiledConstraintOf(spec.options);
  return constraint.ok() && FollowsConstraint(tokenizer, constraint->get(), answer) &&
         HasItsChoices(tokenizer, spec, constraint->get(), answer);
}

}  // namespace lm
