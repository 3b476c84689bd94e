// Cuts a Jinja template into literal text, outputs {{ }} and statements {% %}.
#ifndef LM_ENGINE_TEXT_TEMPLATE_LEXER_H_
#define LM_ENGINE_TEXT_TEMPLATE_LEXER_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lm {

struct TemplateNode {
  enum class Kind { kText, kOutput, kStatement };
  Kind kind;
  std::string content;  // the text, or what stands between the braces
};

// Comments are gone and whitespace control is applied (-, +, trim_blocks, lstrip_blocks, and one
// line break at the very end is dropped). Unimplemented for a brace that is never closed.
absl::StatusOr<std::vector<TemplateNode>> LexTemplate(absl::string_view source);

// A token of an expression.
struct TemplateToken {
  enum class Kind { kEnd, kName, kString, kInteger, kOperator };
  Kind kind = Kind::kEnd;
  std::string text;  // of a string: its value
};

// The tokens of an expression, kEnd last. Unimplemented for characters that have no meaning.
absl::StatusOr<std::vector<TemplateToken>> LexExpression(absl::string_view source);

}  // namespace lm

#endif  // LM_ENGINE_TEXT_TEMPLATE_LEXER_H_
