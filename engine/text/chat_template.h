// Turns a system prompt and a user's prompt into what the model was trained to read.
//
//   ASSIGN_OR_RETURN(ChatTemplate chat, ChatTemplate::Create(vocabulary));
//   std::vector<TextPiece> pieces = chat.Render(system, prompt);
//
// Known today: ChatML, and the plain prompt for models without a template. A template that makes
// something else of a conversation, or that template_program.h cannot follow, is an error that says
// so, never a guess.
#ifndef LM_ENGINE_TEXT_CHAT_TEMPLATE_H_
#define LM_ENGINE_TEXT_CHAT_TEMPLATE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/text/tokenizer.h"
#include "engine/text/vocabulary.h"

namespace lm {

// A value type; thread-safe.
class ChatTemplate {
 public:
  enum class Kind { kPlain, kChatMl };

  // Unimplemented, with the template's first words and the reason, where it is neither known form.
  static absl::StatusOr<ChatTemplate> Create(const Vocabulary& vocabulary);

  // kPlain: system (if any), a blank line, prompt. kChatMl, in one line:
  //   <|im_start|>system\n{system}<|im_end|>\n
  //   <|im_start|>user\n{prompt}<|im_end|>\n
  //   <|im_start|>assistant\n
  // Where `system` is empty its message is the template's default, or left out if that is empty.
  // BOS is not among the pieces: see adds_bos().
  std::vector<TextPiece> Render(absl::string_view system, absl::string_view prompt) const;

  Kind kind() const { return kind_; }
  // What the template says where the conversation has no system message; often empty.
  const std::string& default_system() const { return default_system_; }
  // Whether BOS goes before the pieces, once: the vocabulary or the template asks for it.
  bool adds_bos() const { return adds_bos_; }

 private:
  ChatTemplate(Kind kind, bool adds_bos) : kind_(kind), adds_bos_(adds_bos) {}
  Kind kind_;
  bool adds_bos_;
  std::string default_system_;
};

}  // namespace lm

#endif  // LM_ENGINE_TEXT_CHAT_TEMPLATE_H_
