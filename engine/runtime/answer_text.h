// AnswerText: the text that an answer's tokens make: decoded, without the reasoning where that is
// dropped (else with its marks spelled out), up to a stop string.
#ifndef LM_ENGINE_RUNTIME_ANSWER_TEXT_H_
#define LM_ENGINE_RUNTIME_ANSWER_TEXT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "engine/runtime/request.h"
#include "engine/runtime/stop_matcher.h"
#include "engine/text/chat/thinking_filter.h"
#include "engine/text/detokenizer.h"
#include "engine/text/tokenizer.h"

namespace lm {

// The error of an answer whose `tokens` tokens are reasoning, which it was to be without.
absl::Status NoAnswerError(FinishReason finish, int64_t tokens, const GenerationOptions& options);
// Whether a status is that. Of several samples the others are answers all the same.
bool IsNoAnswer(const absl::Status& status);

class AnswerText {
 public:
  // REQUIRES: *tokenizer outlives this.
  AnswerText(const Tokenizer* tokenizer, const RequestSpec& spec);

  // Appends what a token makes certain to *text. True: a stop string has ended the answer.
  bool Append(int32_t token, std::string* text);
  // The rest, where no stop string has ended it.
  void Finish(std::string* text);

  bool stopped() const { return stop_.matched(); }
  // Whether an answer that ends so would be nothing but reasoning, which is left out: it was cut
  // there, or the model has not ended it.
  bool LacksAnswer(FinishReason finish) const;

 private:
  const Tokenizer& tokenizer_;
  Detokenizer detokenizer_;
  bool spells_marks_ = false;
  const std::shared_ptr<const ThinkingMarks> marks_;
  std::optional<ThinkingFilter> thinking_;
  StopMatcher stop_;
};

}  // namespace lm

#endif  // LM_ENGINE_RUNTIME_ANSWER_TEXT_H_
