#include "engine/runtime/answer_text.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"

namespace lm {
namespace {

bool PromptBeginsThinking(const Tokenizer& tokenizer, const std::vector<int32_t>& prompt) {
  constexpr size_t kLastTokens = 12;  // "<think>" may be several, and white space behind it
  std::string end;
  for (size_t i = prompt.size() - std::min(prompt.size(), kLastTokens); i < prompt.size(); ++i) {
    if (prompt[i] >= tokenizer.size()) return false;
    absl::StrAppend(&end, tokenizer.TokenBytes(prompt[i]));
  }
  return BeginsThinking(end);
}

}  // namespace

AnswerText::AnswerText(const Tokenizer* tokenizer, const RequestSpec& spec)
    : detokenizer_(tokenizer), stop_(spec.options.stop) {
  // What a constraint allows is the answer, from its first token on.
  if (spec.options.thinking == Thinking::kDrop &&
      spec.options.constraint.kind == AnswerConstraint::Kind::kNone) {
    thinking_.emplace(PromptBeginsThinking(*tokenizer, spec.prompt));
  }
}

bool AnswerText::Append(int32_t token, std::string* text) {
  const std::string piece = detokenizer_.Append(token);
  return stop_.Append(thinking_ ? thinking_->Append(piece) : piece, text);
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
