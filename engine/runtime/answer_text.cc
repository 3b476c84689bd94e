#include "engine/runtime/answer_text.h"

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace lm {
namespace {

// The name of a control token that is a mark of reasoning; else empty.
absl::string_view MarkOf(const ThinkingMarks& marks, const Tokenizer& tokenizer, int32_t token) {
  if (!tokenizer.IsControl(token)) return "";
  const absl::string_view name = tokenizer.TokenName(token);
  return marks.IsMark(name) ? name : "";
}

// To SQL a text would end there, and nothing would take it as an input.
void ReplaceNuls(std::string* text) {
  constexpr absl::string_view kNul("\0", 1), kReplacement = "\xef\xbf\xbd";
  if (absl::StrContains(*text, '\0')) absl::StrReplaceAll({{kNul, kReplacement}}, text);
}

constexpr char kNoAnswer[] = "sqlite-lm/no-answer";

absl::Status Marked(const std::string& message) {
  absl::Status status = absl::OutOfRangeError(message);
  status.SetPayload(kNoAnswer, absl::Cord());
  return status;
}

}  // namespace

bool IsNoAnswer(const absl::Status& status) { return status.GetPayload(kNoAnswer).has_value(); }

absl::Status NoAnswerError(FinishReason finish, int64_t tokens, const GenerationOptions& options) {
  constexpr absl::string_view kKeep = R"({"thinking":"keep"} gives what there is)";
  if (finish == FinishReason::kStop) {
    return Marked(absl::StrCat("the model ended its answer within its reasoning: all ", tokens,
                               " tokens are that; ", kKeep));
  }
  return Marked(absl::StrCat(
      finish == FinishReason::kContext ? std::string("the context's end")
                                       : absl::StrCat("max_tokens = ", options.max_tokens),
      " cut the answer off within its reasoning: all ", tokens, " tokens went into that; ",
      finish == FinishReason::kContext
          ? ""
          : R"(raise max_tokens, or say where the reasoning ends, with {"thinking_tokens":200}, or )",
      R"(let the model answer at once, with {"thinking_tokens":0}; )", kKeep));
}

AnswerText::AnswerText(const Tokenizer* tokenizer, const RequestSpec& spec)
    : tokenizer_(*tokenizer),
      detokenizer_(tokenizer),
      marks_(spec.thinking_marks != nullptr ? spec.thinking_marks : ThinkingMarks::Usual()),
      stop_(spec.options.stop) {
  // What a constraint allows is the answer, from its first token on.
  spells_marks_ = spec.options.constraint.kind == AnswerConstraint::Kind::kNone;
  if (spells_marks_ && spec.options.thinking == Thinking::kDrop) {
    thinking_.emplace(marks_, spec.template_end);
  }
}

bool AnswerText::Append(int32_t token, std::string* text) {
  const absl::string_view mark = spells_marks_ ? MarkOf(*marks_, tokenizer_, token) : "";
  // A mark ends a character that is not whole.
  std::string piece =
      mark.empty() ? detokenizer_.Append(token) : absl::StrCat(detokenizer_.Finish(), mark);
  ReplaceNuls(&piece);
  return stop_.Append(thinking_ ? thinking_->Append(piece, !mark.empty()) : piece, text);
}

bool AnswerText::LacksAnswer(FinishReason finish) const {
  if (!thinking_) return false;
  return finish == FinishReason::kStop ? thinking_->is_inside() : thinking_->awaits_answer();
}

// Every end but a stop string releases what was held back. (The replacement character of a cut-off
// one may itself complete a stop string.)
void AnswerText::Finish(std::string* text) {
  if (stop_.matched()) return;
  std::string rest = detokenizer_.Finish();
  if (thinking_) {
    rest = thinking_->Append(rest);
    rest += thinking_->Finish();
  }
  if (!stop_.Append(rest, text)) stop_.Flush(text);
}

}  // namespace lm
