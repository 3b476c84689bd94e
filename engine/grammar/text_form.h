// How a character of a text is written in the answer: as itself, or within a JSON string.
#ifndef LM_ENGINE_GRAMMAR_TEXT_FORM_H_
#define LM_ENGINE_GRAMMAR_TEXT_FORM_H_

#include <cstdint>

#include "engine/grammar/automaton_builder.h"
#include "engine/grammar/code_point_set.h"

namespace lm {

enum class TextForm {
  kPlain,
  kJsonString,  // '"', '\' and control characters escaped, in their shortest form
};

// One character of `set`.
Fragment ClassIn(TextForm form, const CodePointSet& set, AutomatonBuilder* builder);

// The characters that a JSON string holds as they are, and those that it does not.
CodePointSet UnescapedInJson();
inline bool IsEscapedInJson(uint32_t c) { return c < 0x20 || c == '"' || c == '\\'; }

}  // namespace lm

#endif  // LM_ENGINE_GRAMMAR_TEXT_FORM_H_
