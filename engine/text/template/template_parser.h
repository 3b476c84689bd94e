// Parses the Jinja of chat templates.
#ifndef LM_ENGINE_TEXT_TEMPLATE_TEMPLATE_PARSER_H_
#define LM_ENGINE_TEXT_TEMPLATE_TEMPLATE_PARSER_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/text/template/template_tree.h"

namespace lm {

// The grammar of jinja2 3.1 with loop controls and Hugging Face's {% generation %}, except for
// include, import, extends, block, call, with, autoescape, recursive loops and *arguments.
// Unimplemented, beginning with "line <n>: ", for those, for what is no Jinja, and for what is
// nested too deep. A filter or test that does not exist is an error only where it is reached.
absl::StatusOr<TemplateTree> ParseTemplate(absl::string_view source);

}  // namespace lm

#endif  // LM_ENGINE_TEXT_TEMPLATE_TEMPLATE_PARSER_H_
