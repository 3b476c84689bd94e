// ChatReader: one answer of a server, from what it sends to what it is to who asked: without its
// reasoning, up to the stop string.
//
//   ChatReader reader(&spec, &secrets);
//   RETURN_IF_ERROR(reader.Append(event)); ...       // or the whole answer at once
//   ASSIGN_OR_RETURN(Generation generation, reader.Read());
//
// A constraint is not looked at (ProveAnswer).
#ifndef LM_ENGINE_REMOTE_CHAT_READER_H_
#define LM_ENGINE_REMOTE_CHAT_READER_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/remote/chat_api.h"
#include "engine/remote/secrets.h"
#include "engine/runtime/request.h"
#include "engine/runtime/stop_matcher.h"
#include "engine/text/chat/thinking_filter.h"

namespace lm {

// A server may say any number.
inline int32_t SaturatedTokens(int64_t tokens) {
  return static_cast<int32_t>(std::min<int64_t>(tokens, INT32_MAX));
}

// Not thread-safe.
class ChatReader {
 public:
  // REQUIRES: *spec and *secrets, which the server may repeat, outlive it.
  ChatReader(const RequestSpec* spec, const Secrets* secrets);

  // ChatAnswer::Append's errors, which Read gives as well.
  absl::Status Append(absl::string_view event);
  absl::Status AppendJson(const Json& event);
  // Whether the answer has begun.
  bool begun() const { return answer_.pieces > 0 || !answer_.finish.empty(); }
  // The bytes of all that it says, of itself or not.
  size_t bytes() const {
    return answer_.text.size() + answer_.reasoning.size() + answer_.refusal.size();
  }
  // What of the text is certain by now, where somebody looks on while it comes (a constraint's is
  // never, before its end): there the mark that ends a reasoning which the prompt has begun
  // (BehindLoneMark) comes too late, and is text.
  const std::string& text() const { return text_; }

  // At the end: text, finish, first choices and numbers of tokens; a refusal of the model's, or the
  // server's, is its status, and so is a text with U+0000, which prompts and constraints may not
  // have either. Unavailable where the answer is broken, and another try may help.
  absl::StatusOr<Generation> Read();
  // Sets the numbers of tokens; those of a prompt are 0 where the server has not told, those of an
  // answer a guess then.
  void CountTokens(Generation* generation) const;

 private:
  absl::Status Take(absl::Status status);
  void TakeReasoning(absl::string_view piece);
  void EndReasoning();
  void FinishText();
  bool LacksAnswer(FinishReason finish) const;
  // Of an answer whose server does not tell.
  int64_t GuessedTokens() const;
  absl::Status ReadChoices(Generation* generation) const;

  const RequestSpec& spec_;
  const Secrets& secrets_;
  const bool drops_;        // the reasoning; what a constraint allows is all of an answer
  const bool as_it_comes_;  // text_ grows with each event, else at the end
  ChatAnswer answer_;
  size_t taken_ = 0, taken_reasoning_ = 0;  // of answer_
  const std::shared_ptr<const ThinkingMarks> marks_;
  ThinkingFilter filter_;
  StopMatcher stops_;
  bool in_reasoning_ = false;  // text_ ends with reasoning that has not been ended
  std::string text_;
  absl::Status broken_;
};

}  // namespace lm

#endif  // LM_ENGINE_REMOTE_CHAT_READER_H_
