// From JSON to the values of chat templates.
#ifndef LM_ENGINE_TEXT_TEMPLATE_JSON_VALUE_H_
#define LM_ENGINE_TEXT_TEMPLATE_JSON_VALUE_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/text/template/template_value.h"

namespace lm {

// Everything in it is the input's. InvalidArgument, naming the byte or the key, for what is not
// JSON, for a key that an object has twice, and for more levels than TemplateValue::kMaxDepth.
absl::StatusOr<TemplateValue> ParseJsonValue(absl::string_view json);

}  // namespace lm

#endif  // LM_ENGINE_TEXT_TEMPLATE_JSON_VALUE_H_
