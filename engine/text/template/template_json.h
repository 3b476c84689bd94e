// The filter tojson: json.dumps of Python, as Hugging Face sets it.
#ifndef LM_ENGINE_TEXT_TEMPLATE_TEMPLATE_JSON_H_
#define LM_ENGINE_TEXT_TEMPLATE_TEMPLATE_JSON_H_

#include <string>

#include "absl/status/status.h"
#include "engine/text/template/template_value.h"

namespace lm {

struct TemplateJsonForm {
  bool ensure_ascii = false;
  bool sort_keys = false;
  bool is_indented = false;  // a line for each element
  std::string indent;        // ... that begins with this once a level
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};

// Appends `value`. The characters of its strings stay whose they were, and everything between them
// counts as the input's. InvalidArgument for what is no JSON.
absl::Status AppendJson(const TemplateValue& value, const TemplateJsonForm& form,
                        TemplateBudget* budget, TemplateText* out);

}  // namespace lm

#endif  // LM_ENGINE_TEXT_TEMPLATE_TEMPLATE_JSON_H_
