// Turns a conversation into what the model was trained to read.
//
//   ASSIGN_OR_RETURN(ChatTemplate chat, ChatTemplate::Create(vocabulary));
//   ASSIGN_OR_RETURN(RenderedChat rendered, chat.Render(system, prompt, {}));
//   if (rendered.adds_bos) ids.push_back(vocabulary.bos);
//   RETURN_IF_ERROR(tokenizer.Encode(rendered.pieces, &ids));
//
// The template is the model file's own, written in Jinja (see template_renderer.h), or the one that
// the file names, "chatml" or "rwkv-world". Of every character of the outcome it is known whether
// the template or the conversation said it.
#ifndef LM_ENGINE_TEXT_CHAT_CHAT_TEMPLATE_H_
#define LM_ENGINE_TEXT_CHAT_CHAT_TEMPLATE_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/civil_time.h"
#include "absl/types/span.h"
#include "engine/text/template/template_value.h"
#include "engine/text/text_piece.h"
#include "engine/text/vocabulary.h"

namespace lm {

struct TemplateTree;
class ShapeMemory;

struct ChatMessage {
  std::string role;               // "system", "user", "assistant", "tool", ...
  TemplateValue content;          // mostly TemplateValue::Input(text); kUndefined: none
  TemplateValue::Entries others;  // "tool_calls", "reasoning_content", ...
};

struct ChatOptions {
  bool add_generation_prompt = true;  // begin the assistant's turn
  TemplateValue tools = TemplateValue::None();
  // What else the template may ask for: enable_thinking, reasoning_effort, ...
  std::vector<std::pair<std::string, TemplateValue>> template_args;
  absl::CivilSecond now;  // what the template takes for today
};

struct RenderedChat {
  // kMarkup what the template says, kInput what comes from the conversation and the options.
  std::vector<TextPiece> pieces;
  // Whether BOS goes before the pieces: the vocabulary or the template asks for it. It is not among
  // them, and so never comes twice. (Without a template all is kPlain.)
  bool adds_bos = false;
  bool says_bos = false;  // the template does, at its beginning, from where it was taken

  std::string Text() const;
  // What the template says at the end, behind the conversation's last word.
  std::string TemplateEnd() const;
};

// A value type; thread-safe.
class ChatTemplate {
 public:
  // Unimplemented, with the template's first words, the line and the construct, for a template that
  // is not understood; likewise for a name that is not known.
  static absl::StatusOr<ChatTemplate> Create(const Vocabulary& vocabulary);
  // Then each Render gives that error.
  static ChatTemplate CreateOrRefuse(const Vocabulary& vocabulary);

  // The same conversation and options give the same pieces, always. Without a template: the
  // messages with a blank line between each two. InvalidArgument where the template refuses the
  // conversation, with its own words, or cannot be followed.
  //
  // No text is lost: where the template would not write one, the conversation is told to it in
  // another shape (see message_shape.h), and where none helps, that is InvalidArgument.
  //
  // A role may be part of a control token ("<|" + role + "|>") if it is one that everybody knows;
  // other roles are plain text, as contents are.
  absl::StatusOr<RenderedChat> Render(absl::Span<const ChatMessage> messages,
                                      const ChatOptions& options) const;
  // A system message, left out where empty, and a user's.
  absl::StatusOr<RenderedChat> Render(absl::string_view system, absl::string_view prompt,
                                      const ChatOptions& options) const;
  // The conversation as it is, whatever becomes of its texts.
  absl::StatusOr<RenderedChat> RenderAsGiven(absl::Span<const ChatMessage> messages,
                                             const ChatOptions& options) const;

 private:
  ChatTemplate() = default;
  absl::StatusOr<RenderedChat> RenderTree(absl::Span<const ChatMessage> messages,
                                          const ChatOptions& options) const;

  std::shared_ptr<const TemplateTree> tree_;  // null: no template
  std::shared_ptr<ShapeMemory> shapes_;
  std::string bos_;  // the tokens' names; empty where there is none
  std::string eos_;
  std::string unknown_;
  std::string padding_;
  bool add_bos_ = false;
  bool tells_bos_ = true;  // the template, as the file does
  bool tells_eos_ = true;
  absl::Status refusal_;  // of all conversations
};

}  // namespace lm

#endif  // LM_ENGINE_TEXT_CHAT_CHAT_TEMPLATE_H_
