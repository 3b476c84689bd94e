// Where a text may be cut without hurting what it says.
#ifndef LM_ENGINE_TEXT_TEXT_BREAKS_H_
#define LM_ENGINE_TEXT_TEXT_BREAKS_H_

#include <cstddef>

#include "absl/strings/string_view.h"

namespace lm {

// From the weakest to the strongest.
enum class TextBreak { kInside, kWord, kLine, kSentence, kParagraph };

// What ends at byte `at`: the strongest there is. White space belongs to what it follows, so a
// break lies before a character that is none.
//
// Sentences end as Unicode says (UAX 29), and not behind abbreviations, which that leaves to
// tables: with one of . ! ? and other scripts' marks, with any quotes and brackets that close
// behind it, if white space follows and then no small letter (in quotes or brackets perhaps), comma
// or dash. A full stop ends none behind a single letter (initials, "e.g."), a usual abbreviation
// ("Mr.", "vs."; "No." before a number), or a number that begins its line ("1. Eggs"). The
// full-width marks of Chinese and Japanese need no space. REQUIRES: text is valid UTF-8, 0 < at <=
// text.size() is the beginning of a character (or the end).
TextBreak BreakAt(absl::string_view text, size_t at);

}  // namespace lm

#endif  // LM_ENGINE_TEXT_TEXT_BREAKS_H_
