#include "engine/runtime/reasoning.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/printable.h"
#include "engine/base/status_macros.h"
#include "engine/runtime/constraint_cache.h"

namespace lm {
namespace {

constexpr int32_t kMostMissing = 3;  // bytes of a character, each of which may be a token
constexpr int32_t kMostBehind = 4;   // tokens of white space that a free answer does not count

std::shared_ptr<const ThinkingMarks> MarksOf(const RequestSpec& spec) {
  return spec.thinking_marks != nullptr ? spec.thinking_marks : ThinkingMarks::Usual();
}

absl::StatusOr<std::vector<int32_t>> MarkupTokens(const Tokenizer& tokenizer,
                                                  absl::string_view text) {
  std::vector<int32_t> ids;
  RETURN_IF_ERROR(tokenizer.EncodeInside(text, &ids, TextKind::kMarkup));
  if (!ids.empty() && ids.size() <= kMostClosingTokens) return ids;
  constexpr size_t kMostShown = 60;
  return absl::InvalidArgumentError(absl::StrCat(
      "thinking_tokens: '", Printable(text.substr(0, kMostShown)), "'",
      text.size() > kMostShown ? " ..." : "", ", which ends the model's reasoning, has ",
      ids.size(), " tokens; 1 to ", kMostClosingTokens, " are of use"));
}

// Bytes that a character lacks behind this one, if so many were missing before.
int32_t MissingBehind(char byte, int32_t missing) {
  const auto b = static_cast<unsigned char>(byte);
  if (b >= 0xf0) return 3;
  if (b >= 0xe0) return 2;
  if (b >= 0xc0) return 1;
  return b >= 0x80 ? std::max(missing - 1, 0) : 0;
}

}  // namespace

bool Reasoning::IsWanted(const RequestSpec& spec) {
  if (!spec.reasoning_tokens.has_value() || MostAnswerTokens(spec.options) == 0) return false;
  if (spec.score_prompt || spec.embed.has_value()) return false;
  const std::shared_ptr<const ThinkingMarks> marks = MarksOf(spec);
  if (marks->FindBegun(spec.template_end) != nullptr) return true;
  return !IsConstrained(spec.options) && !spec.wants_first_choices && !marks->pairs().empty();
}

int64_t Reasoning::MostTokens(const RequestSpec& spec) {
  if (!IsWanted(spec)) return 0;
  return std::max<int64_t>(*spec.reasoning_tokens, 1) + kMostMissing + spec.closing_tokens +
         kMostBehind + static_cast<int64_t>(spec.begun.size());
}

absl::StatusOr<int32_t> Reasoning::CountClosing(const Tokenizer& tokenizer,
                                                const RequestSpec& spec) {
  if (!IsWanted(spec)) return 0;
  const std::shared_ptr<const ThinkingMarks> marks = MarksOf(spec);
  const ThinkingMarks::Pair* const begun = marks->FindBegun(spec.template_end);
  size_t most = 0;
  for (const ThinkingMarks::Pair& pair : marks->pairs()) {
    if (begun != nullptr && pair.end != begun->end) continue;
    for (const bool has_lines : {false, true}) {
      ASSIGN_OR_RETURN(const std::vector<int32_t> ids,
                       MarkupTokens(tokenizer, ThinkingMarks::End(pair.end, has_lines)));
      most = std::max(most, ids.size());
    }
  }
  return static_cast<int32_t>(most);
}

Reasoning::Reasoning(const Tokenizer* tokenizer, const RequestSpec& spec)
    : tokenizer_(*tokenizer),
      marks_(MarksOf(spec)),
      constrained_(IsConstrained(spec.options)),
      has_line_(marks_->FindBegun(spec.template_end) != nullptr &&
                absl::EndsWith(spec.template_end, "\n")),
      left_(*spec.reasoning_tokens),
      filter_(marks_, spec.template_end) {}

absl::StatusOr<Reasoning::Turn> Reasoning::Take(int32_t token) {
  if (tokenizer_.IsEndOfGeneration(token)) {
    if (filter_.is_inside()) return Close({});
    return Turn{.tokens = {token}, .ends = true};
  }
  --left_;
  const bool had_begun = Read(token);
  if (filter_.is_at_beginning()) return Turn{.tokens = {token}};
  if (filter_.is_inside()) {
    const bool goes_on = left_ > 0 || (missing_ > 0 && left_ > -kMostMissing);
    return goes_on ? Turn{.tokens = {token}} : Close({token});
  }
  if (constrained_) return EndByModel(token);
  if (filter_.awaits_answer()) {
    return Turn{.tokens = {token}, .ends = ++behind_ >= kMostBehind};
  }
  answers_at_once_ = !had_begun;
  return Turn{.tokens = {token}, .ends = true, .of_answer = 1};
}

// Reads on until the answer begins. Whether the reasoning did before that, at the latest with this
// token.
bool Reasoning::Read(int32_t token) {
  const absl::string_view name = tokenizer_.TokenName(token);
  if (tokenizer_.IsControl(token) && marks_->IsMark(name)) {
    filter_.Append(name, /*is_mark=*/true);
  }
  const absl::string_view bytes = tokenizer_.TokenBytes(token);
  bool has_begun = filter_.awaits_answer();
  for (taken_ = 0; taken_ < bytes.size(); ++taken_) {
    const bool goes_on = filter_.is_at_beginning() || filter_.is_inside() ||
                         (!constrained_ && filter_.awaits_answer());
    if (!goes_on) break;
    if (filter_.is_inside() && !first_.has_value()) first_ = bytes[taken_];
    missing_ = MissingBehind(bytes[taken_], missing_);
    filter_.Append(bytes.substr(taken_, 1));
    has_begun = has_begun || filter_.awaits_answer();
  }
  return has_begun;
}

// What the token says behind the mark is not what the constraint allows, unless it is lines.
absl::StatusOr<Reasoning::Turn> Reasoning::EndByModel(int32_t token) const {
  Turn turn{.tokens = {token}, .ends = true};
  const absl::string_view bytes = tokenizer_.TokenBytes(token);
  const absl::string_view behind = bytes.substr(taken_);
  const bool is_lines =
      absl::StrContains(behind, '\n') && absl::StripAsciiWhitespace(behind).empty();
  if (is_lines) return turn;
  if (!behind.empty()) {
    std::vector<int32_t> cut = AnswerTokens(tokenizer_, bytes.substr(0, taken_));
    if (!cut.empty()) turn.tokens = std::move(cut);
  }
  const absl::string_view lines = ThinkingMarks::BehindEnd(filter_.end_mark(), HasLines());
  if (lines.empty()) return turn;
  ASSIGN_OR_RETURN(const std::vector<int32_t> ids, MarkupTokens(tokenizer_, lines));
  turn.tokens.insert(turn.tokens.end(), ids.begin(), ids.end());
  return turn;
}

// White space that the model writes behind that is no part of a free answer.
absl::StatusOr<Reasoning::Turn> Reasoning::Close(std::vector<int32_t> tokens) {
  const std::string end = ThinkingMarks::End(filter_.end_mark(), HasLines());
  ASSIGN_OR_RETURN(const std::vector<int32_t> mark, MarkupTokens(tokenizer_, end));
  tokens.insert(tokens.end(), mark.begin(), mark.end());
  filter_.Append(end, /*is_mark=*/true);
  return Turn{.tokens = std::move(tokens), .ends = constrained_};
}

// Whether the mark that begins it stands on a line of its own.
bool Reasoning::HasLines() const { return has_line_ || first_ == '\n'; }

}  // namespace lm
