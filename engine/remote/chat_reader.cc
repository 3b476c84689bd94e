#include "engine/remote/chat_reader.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/json.h"
#include "engine/base/printable.h"
#include "engine/base/status_macros.h"
#include "engine/remote/estimated_tokens.h"
#include "engine/runtime/answer_text.h"

namespace lm {
namespace {

bool IsOneOf(absl::string_view word, std::initializer_list<absl::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

constexpr double kLeastShare = 0.1;  // of the choices, to be told from each other

// The beginning of a choice that the word is; else those that it is but for capitals, where that is
// of one choice, spelled in several ways ("YES": of "yes" and "Yes"). None: there is none, or there
// are several.
std::vector<std::string> BegunChoices(const Json::Array& choices, absl::string_view word) {
  if (word.empty()) return {};
  std::set<std::string> begun, meant;
  for (const Json& choice : choices) {
    if (!choice.is_string() || !absl::StartsWithIgnoreCase(choice.string(), word)) continue;
    std::string beginning = choice.string().substr(0, word.size());
    if (beginning == word) return {std::move(beginning)};
    begun.insert(std::move(beginning));
    meant.insert(absl::AsciiStrToLower(choice.string()));
  }
  if (begun.size() > 1 && meant.size() > 1) return {};
  return {begun.begin(), begun.end()};
}

}  // namespace

ChatReader::ChatReader(const RequestSpec* spec, const Secrets* secrets)
    : spec_(*spec),
      secrets_(*secrets),
      drops_(spec->options.thinking == Thinking::kDrop || IsConstrained(spec->options)),
      as_it_comes_(!IsConstrained(spec->options) && (spec->stream || !drops_)),
      marks_(spec->thinking_marks != nullptr ? spec->thinking_marks : ThinkingMarks::Usual()),
      filter_(marks_, ""),
      stops_(spec->options.stop) {}

absl::Status ChatReader::Append(absl::string_view event) {
  return Take(answer_.Append(event, secrets_));
}

absl::Status ChatReader::AppendJson(const Json& event) {
  return Take(answer_.AppendJson(event, secrets_));
}

absl::Status ChatReader::Take(absl::Status status) {
  broken_ = status;
  if (!as_it_comes_ || !broken_.ok() || stops_.matched()) return status;
  const absl::string_view reasoning = answer_.reasoning, text = answer_.text;
  if (!drops_) TakeReasoning(reasoning.substr(taken_reasoning_));
  const absl::string_view piece = text.substr(taken_);
  if (!piece.empty()) EndReasoning();
  stops_.Append(drops_ ? filter_.Append(piece) : std::string(piece), &text_);
  taken_reasoning_ = reasoning.size();
  taken_ = text.size();
  return status;
}

// Some servers take the reasoning out themselves.
void ChatReader::TakeReasoning(absl::string_view piece) {
  if (piece.empty()) return;
  if (!std::exchange(in_reasoning_, true)) text_ += "<think>\n";
  absl::StrAppend(&text_, piece);
}

void ChatReader::EndReasoning() {
  if (std::exchange(in_reasoning_, false)) text_ += "\n</think>\n\n";
}

// With what was held back.
void ChatReader::FinishText() {
  if (!as_it_comes_) {
    const absl::string_view answer = BehindLoneMark(*marks_, answer_.text);
    stops_.Append(filter_.Append(answer), &text_);
  }
  EndReasoning();
  if (drops_ && !stops_.matched()) stops_.Append(filter_.Finish(), &text_);
  if (!stops_.matched()) stops_.Flush(&text_);
}

absl::StatusOr<Generation> ChatReader::Read() {
  RETURN_IF_ERROR(broken_);
  if (answer_.finish.empty()) {
    const std::string said =
        answer_.stray.empty()
            ? ""
            : absl::StrCat("; the server said: ", ErrorText(answer_.stray, secrets_));
    return absl::UnavailableError(absl::StrCat("the answer broke off before its end", said));
  }
  if (IsOneOf(answer_.finish, {"abort", "error"})) {
    return absl::UnavailableError(
        absl::StrCat("the server has given the answer up (finish_reason ", answer_.finish, ")"));
  }
  if (!answer_.has_message && !answer_.odd.empty()) {
    return absl::UnavailableError(absl::StrCat("the server sent a choice without a message: ",
                                               ShownWords(answer_.odd, secrets_)));
  }
  FinishText();
  Generation generation{.text = text_, .finish = FinishReason::kStop};
  CountTokens(&generation);
  const bool is_cut = IsOneOf(answer_.finish, {"length", "max_tokens", "model_length"});
  if (is_cut && !stops_.matched()) generation.finish = FinishReason::kLength;
  if (answer_.finish == "content_filter") {
    generation.status = absl::FailedPreconditionError("the server's content filter stopped it");
  } else if (!answer_.refusal.empty()) {
    generation.status = absl::FailedPreconditionError(
        absl::StrCat("the model refuses to answer: ", ShownWords(answer_.refusal, secrets_)));
  } else if (answer_.text.empty() && IsOneOf(answer_.finish, {"tool_calls", "function_call"})) {
    generation.status = absl::FailedPreconditionError(absl::StrCat(
        "the model calls a tool and answers nothing (finish_reason ", answer_.finish, ")"));
  } else if (const size_t nul = text_.find('\0'); nul != text_.npos) {
    generation.status = absl::FailedPreconditionError(
        absl::StrCat("the server's answer has a NUL character (U+0000), at byte ", nul,
                     ": to SQL, a text ends there"));
  } else if (LacksAnswer(generation.finish)) {
    generation.status = NoAnswerError(generation.finish, generation.tokens_out, spec_.options);
  } else if (spec_.wants_first_choices) {
    generation.status = ReadChoices(&generation);
  }
  return generation;
}

// Of a reasoning that the server takes out itself nothing else tells where it has ended.
bool ChatReader::LacksAnswer(FinishReason finish) const {
  if (spec_.options.thinking != Thinking::kDrop || spec_.wants_first_choices) return false;
  if (!text_.empty() || stops_.matched()) return false;
  const bool is_cut = finish != FinishReason::kStop;
  if (is_cut && !answer_.reasoning.empty() && answer_.text.empty()) return true;
  return finish == FinishReason::kStop ? filter_.is_inside() : filter_.awaits_answer();
}

// Of the first token's alternatives those with which an answer may begin.
absl::Status ChatReader::ReadChoices(Generation* generation) const {
  if (answer_.first.empty()) {
    return absl::FailedPreconditionError(
        "the server gives no probabilities (top_logprobs), and what they say is not guessed; with "
        "the option {\"vote\": 5} so many answers are counted instead");
  }
  const std::optional<Json> choices = Json::Parse(spec_.options.constraint.text);
  const Json::Array none;
  const Json::Array& list = choices.has_value() && choices->is_array() ? choices->array() : none;
  double share = 0;
  for (const FirstChoice& one : answer_.first) {
    std::vector<std::string> begun =
        BegunChoices(list, absl::StripLeadingAsciiWhitespace(one.text));
    if (begun.empty()) continue;
    share += std::exp(double{one.logprob});
    // Of several spellings each has as much of it.
    const float logprob = one.logprob - std::log(static_cast<float>(begun.size()));
    for (std::string& text : begun) {
      generation->first_choices.push_back({std::move(text), logprob});
    }
  }
  if (share >= kLeastShare) return absl::OkStatus();
  const std::string first = Printable(secrets_.Without(answer_.first[0].text));
  if (generation->first_choices.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("none of the ", answer_.first.size(),
                     " most probable beginnings is one of the choices; the first is ", first));
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "the choices' beginnings have ", 100 * share,
      "% of the probability, too little to tell them apart; the most probable beginning is ", first,
      R"(; with the option {"vote": 5} so many answers are counted instead)"));
}

// Servers send a token a piece, or many, or all of them; but not more than they may.
int64_t ChatReader::GuessedTokens() const {
  const bool is_choice = spec_.options.constraint.kind == AnswerConstraint::Kind::kChoices;
  const int64_t most = spec_.wants_first_choices ? 1
                       : is_choice               ? INT64_MAX
                                                 : int64_t{spec_.options.max_tokens};
  const int64_t by_bytes = GuessTokens(answer_.text.size() + answer_.reasoning.size());
  return std::max(answer_.pieces, std::min(by_bytes, most));
}

void ChatReader::CountTokens(Generation* generation) const {
  generation->tokens_in = SaturatedTokens(answer_.tokens_in.value_or(0));
  generation->tokens_cached = SaturatedTokens(answer_.tokens_cached.value_or(0));
  generation->tokens_out =
      SaturatedTokens(answer_.tokens_out.has_value() ? *answer_.tokens_out : GuessedTokens());
}

}  // namespace lm
