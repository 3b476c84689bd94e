// Code points that younger Unicode versions than PCRE2's have assigned.
//
// PCRE2 10.42 knows Unicode 14, the vocabularies' own tools know 15.1; other releases of PCRE2 know
// others. A text is split the same way with all of them because, before it is matched, each code
// point assigned in 15.0 and 15.1 is replaced by an old one of the same category and length.
#ifndef LM_ENGINE_TEXT_UNICODE_SUPPLEMENT_H_
#define LM_ENGINE_TEXT_UNICODE_SUPPLEMENT_H_

#include <string>

#include "absl/strings/string_view.h"

namespace lm {

// `text` itself where there is nothing to replace; else a copy in *buffer, byte for byte as long,
// with the boundaries of its characters where they were.
// REQUIRES: text is valid UTF-8.
absl::string_view ReplaceYoungCodePoints(absl::string_view text, std::string* buffer);

}  // namespace lm

#endif  // LM_ENGINE_TEXT_UNICODE_SUPPLEMENT_H_
