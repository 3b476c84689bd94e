#include "engine/text/same_words.h"

#include <cstddef>
#include <cstdint>

#include "engine/base/utf8.h"
#include "engine/text/unicode_characters.h"

namespace lm {
namespace {

// A sign belongs to the number behind it.
bool IsSign(uint32_t c) { return c == '-' || c == '+' || c == 0x2212; }

bool IsWord(uint32_t c) {
  return IsInClass(c, CharacterClass::kLetter) || IsInClass(c, CharacterClass::kNumber);
}

}  // namespace

std::string WordsOf(absl::string_view text) {
  std::string words, plain;
  size_t end = 0;      // of the last word in `words`
  bool space = false;  // before the next character
  bool begun = false;  // a word has come
  std::string sign;    // just before the first word
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const uint32_t c = DecodeUtf8(text, &at);
    const absl::string_view character = text.substr(begin, at - begin);
    if (IsUnicodeSpace(c)) {
      space = true;
      sign.clear();
      continue;
    }
    if (space && !plain.empty()) plain += ' ';
    plain.append(character.data(), character.size());
    const bool word = IsWord(c);
    if (!begun && !word) {
      sign = IsSign(c) ? std::string(character) : std::string();
      space = false;
      continue;
    }
    if (!begun) words += IsInClass(c, CharacterClass::kNumber) ? sign : std::string();
    if (begun && space) words += ' ';
    begun = true;
    space = false;
    words += ToLowerCharacter(character);
    if (word) end = words.size();
  }
  words.resize(end);
  return begun ? words : plain;
}

}  // namespace lm
