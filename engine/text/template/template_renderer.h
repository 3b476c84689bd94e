// Runs a parsed chat template.
#ifndef LM_ENGINE_TEXT_TEMPLATE_TEMPLATE_RENDERER_H_
#define LM_ENGINE_TEXT_TEMPLATE_TEMPLATE_RENDERER_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/civil_time.h"
#include "engine/text/template/template_tree.h"

namespace lm {

struct TemplateInput {
  std::vector<std::pair<std::string, TemplateValue>> variables;  // the last of a name counts
  absl::CivilSecond now;                                         // for strftime_now
};

// What the template writes: the same for the same input, wherever and whenever. As jinja2 3.1 in
// the sandbox of Hugging Face, where values cannot be changed; the functions are raise_exception,
// strftime_now, namespace, range and dict.
//
// FailedPrecondition with the template's own words for raise_exception; InvalidArgument, beginning
// with "line <n>: ", for what Python would raise, for what is not supported (see
// template_parser.h), and for the limits of TemplateBudget.
absl::StatusOr<TemplateText> RenderTemplate(const TemplateTree& tree, const TemplateInput& input);

}  // namespace lm

#endif  // LM_ENGINE_TEXT_TEMPLATE_TEMPLATE_RENDERER_H_
