// GPT-2's spelling of bytes in token names: each byte is one printable character. Bytes that print
// stand for themselves (as Latin-1), the other 68 are U+0100 onwards in order; so "Ġ" is a space.
#ifndef LM_ENGINE_TEXT_BYTE_ALPHABET_H_
#define LM_ENGINE_TEXT_BYTE_ALPHABET_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace lm {

// The character, in UTF-8, that spells a byte.
absl::string_view SpellByte(uint8_t byte);

// `bytes` spelled out.
std::string SpellBytes(absl::string_view bytes);

// The bytes that a name spells. A character outside the alphabet stands for itself.
// REQUIRES: name is valid UTF-8.
std::string UnspellBytes(absl::string_view name);

}  // namespace lm

#endif  // LM_ENGINE_TEXT_BYTE_ALPHABET_H_
