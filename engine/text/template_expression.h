// Evaluates the expressions of a chat template over stand-ins for its texts.
#ifndef LM_ENGINE_TEXT_TEMPLATE_EXPRESSION_H_
#define LM_ENGINE_TEXT_TEMPLATE_EXPRESSION_H_

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/text/template_value.h"

namespace lm {

struct TemplateScope {
  std::vector<bool> is_system;  // the conversation's messages: system or user
  absl::flat_hash_map<std::string, TemplateValue> variables;
};

// Unimplemented, saying what it is about, for anything outside the subset: see RunTemplate.
absl::StatusOr<TemplateValue> EvaluateExpression(absl::string_view source,
                                                 const TemplateScope& scope);

}  // namespace lm

#endif  // LM_ENGINE_TEXT_TEMPLATE_EXPRESSION_H_
