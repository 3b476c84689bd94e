// UTF-8 as RFC 3629 has it: no surrogates, no overlong forms, nothing above U+10FFFF.
#ifndef LM_ENGINE_BASE_UTF8_H_
#define LM_ENGINE_BASE_UTF8_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace lm {

// The length of the longest prefix of `text` that is valid UTF-8; text.size() if all of it is.
size_t ValidUtf8Prefix(absl::string_view text);

// Decodes the character at text[*pos] and moves *pos past it. Returns U+FFFD and moves one byte
// where the bytes are not valid.
// REQUIRES: *pos < text.size().
uint32_t DecodeUtf8(absl::string_view text, size_t* pos);

// Appends the UTF-8 form of a code point.
// REQUIRES: code_point is a Unicode scalar value.
void AppendUtf8(uint32_t code_point, std::string* out);

// How many bytes at the end of `text` are the beginning of a character that is not finished yet
// (0 to 3). Bytes that can never become a character count as finished.
size_t IncompleteUtf8Suffix(absl::string_view text);

}  // namespace lm

#endif  // LM_ENGINE_BASE_UTF8_H_
