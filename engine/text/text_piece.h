// A stretch of a prompt, and whose words it has.
#ifndef LM_ENGINE_TEXT_TEXT_PIECE_H_
#define LM_ENGINE_TEXT_TEXT_PIECE_H_

#include <cstdint>
#include <string>

namespace lm {

// Which tokens are recognised by their names. User-defined ones are ordinary pieces of text, but
// for those that look like markup ("<think>", "<tool_call>"): between them a model reads its
// template's structure.
//   kMarkup  a chat template's own words: all
//   kInput   somebody's text within a template: user-defined ones that do not look like markup
//   kPlain   a text of its own, as other tools encode it: all user-defined ones
enum class TextKind : uint8_t { kPlain, kMarkup, kInput };

struct TextPiece {
  std::string text;
  TextKind kind = TextKind::kPlain;
};

}  // namespace lm

#endif  // LM_ENGINE_TEXT_TEXT_PIECE_H_
