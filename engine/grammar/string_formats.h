// The values of a JSON Schema's `format` that strings can be held to.
#ifndef LM_ENGINE_GRAMMAR_STRING_FORMATS_H_
#define LM_ENGINE_GRAMMAR_STRING_FORMATS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace lm {

// A regular expression for strings of that format: all of them valid, the usual ones among them.
// Empty if the format is not known.
absl::string_view FormatRegex(absl::string_view format);
// The same for a TextSet, of which only texts of up to `max_length` characters are kept, if any: of
// fewer states, which multiply there. Of its texts those of up to `most` characters are meant.
struct FormatOfSet {
  absl::string_view regex;
  std::optional<int64_t> most;
};
FormatOfSet FormatRegexOfSet(absl::string_view format, std::optional<int64_t> max_length);

// Known, as one of strings or as one of OpenAPI's for numbers.
bool IsFormat(absl::string_view format);

// The names of those of strings, for messages: "date, time, ...".
std::string FormatNames();

}  // namespace lm

#endif  // LM_ENGINE_GRAMMAR_STRING_FORMATS_H_
