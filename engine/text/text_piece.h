// A stretch of a prompt, and whose words it has.
#ifndef LM_ENGINE_TEXT_TEXT_PIECE_H_
#define LM_ENGINE_TEXT_TEXT_PIECE_H_

#include <string>

namespace lm {

// kMarkup: a chat template's own words, in which control tokens are recognised. kPlain: everything
// else, in which they never are, whatever it spells.
enum class TextKind : bool { kPlain, kMarkup };

struct TextPiece {
  std::string text;
  TextKind kind = TextKind::kPlain;
};

}  // namespace lm

#endif  // LM_ENGINE_TEXT_TEXT_PIECE_H_
