// Python's operations on strings, over strings that know whose bytes they are. Positions that are
// asked for and given count bytes.
#ifndef LM_ENGINE_TEXT_TEMPLATE_TEMPLATE_STRINGS_H_
#define LM_ENGINE_TEXT_TEMPLATE_TEMPLATE_STRINGS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/text/template/template_budget.h"
#include "engine/text/template/template_text.h"
#include "engine/text/template/template_value.h"

namespace lm {

enum class TextSides { kLeft, kRight, kBoth };
// Without `characters` white space is stripped.
TemplateText StripText(const TemplateText& text, std::optional<absl::string_view> characters,
                       TextSides sides);

// str.split(separator, most) and, from the right, str.rsplit: without a separator at white space.
// A negative `most` is no limit. InvalidArgument for an empty separator.
absl::StatusOr<TemplateValue::List> SplitText(const TemplateText& text,
                                              std::optional<absl::string_view> separator,
                                              int64_t most, bool from_right,
                                              TemplateBudget* budget);
// The lines, without their ends.
absl::StatusOr<TemplateValue::List> SplitLines(const TemplateText& text, TemplateBudget* budget);

// A negative `most` is no limit.
absl::StatusOr<TemplateText> ReplaceText(const TemplateText& text, absl::string_view old,
                                         const TemplateText& replacement, int64_t most,
                                         TemplateBudget* budget);

// ToLowerCharacter, but that \u0130 becomes an i with a dot above, two characters, as in Python.
std::string LowerCharacter(absl::string_view character);
enum class TextCase { kUpper, kLower, kTitle, kCapitalized };
TemplateText ChangeCase(const TemplateText& text, TextCase wanted);

// Where `part` is in `text` first, from `from` on, or npos; in linear time, unlike std's.
size_t FindFirst(absl::string_view text, absl::string_view part, size_t from = 0);
// Where it is last, or npos; what is compared is the budget's.
absl::StatusOr<size_t> FindLast(absl::string_view text, absl::string_view part,
                                TemplateBudget* budget);

int64_t CountCharacters(absl::string_view bytes);
// The byte at which that character begins; bytes.size() for those behind the last.
// REQUIRES: character >= 0.
size_t ByteOfCharacter(absl::string_view bytes, int64_t character);

}  // namespace lm

#endif  // LM_ENGINE_TEXT_TEMPLATE_TEMPLATE_STRINGS_H_
