// Cuts a Jinja template into the tokens of its texts, outputs {{ }} and statements {% %}.
#ifndef LM_ENGINE_TEXT_TEMPLATE_TEMPLATE_LEXER_H_
#define LM_ENGINE_TEXT_TEMPLATE_TEMPLATE_LEXER_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lm {

struct TemplateToken {
  enum class Kind {
    kEnd,
    kText,  // outside of all braces; in front of every other token outside
    kOutputBegin,
    kOutputEnd,
    kStatementBegin,
    kStatementEnd,
    kName,
    kString,  // `text` is its value
    kInteger,
    kFloat,
    kOperator,
  };
  Kind kind = Kind::kEnd;
  std::string text;
  int line = 0;  // from 1
};

// The tokens of a template, kEnd last, as jinja2 sees them with trim_blocks and lstrip_blocks on:
// comments are gone, {% raw %} is text, and the white space that - and + speak of is decided.
// Unimplemented, beginning with "line <n>: ", for what has no meaning.
absl::StatusOr<std::vector<TemplateToken>> LexTemplate(absl::string_view source);

}  // namespace lm

#endif  // LM_ENGINE_TEXT_TEMPLATE_TEMPLATE_LEXER_H_
