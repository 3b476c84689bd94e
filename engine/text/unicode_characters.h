// What Python's str knows of characters, from PCRE2's tables.
#ifndef LM_ENGINE_TEXT_UNICODE_CHARACTERS_H_
#define LM_ENGINE_TEXT_UNICODE_CHARACTERS_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace lm {

// str.isspace() of one character.
bool IsUnicodeSpace(uint32_t code_point);
// str.isprintable() of one character.
bool IsPrintable(uint32_t code_point);
// str.isdigit() of one character: superscripts and digits in circles are some, too.
bool IsDigit(uint32_t code_point);
// Whether a character has a property that PCRE2 knows: kLetter \p{L}, kDecimal \p{Nd}, kNumber
// \p{N}, and those that decide where a word ends in a sigma. (Of these PCRE2 knows from 10.40 on.)
enum class CharacterClass { kLetter, kDecimal, kNumber, kPrintable, kCased, kCaseIgnorable };
bool IsInClass(uint32_t code_point, CharacterClass wanted);
// One character in upper or lower case. Simple mappings, except that ß becomes SS and Latin
// ligatures their letters, as in Python.
std::string ToUpperCharacter(absl::string_view character);
// As a word begins with it: ß is Ss, ǆ is ǅ.
std::string ToTitleCharacter(absl::string_view character);
std::string ToLowerCharacter(absl::string_view character);

}  // namespace lm

#endif  // LM_ENGINE_TEXT_UNICODE_CHARACTERS_H_
