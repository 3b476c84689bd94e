// The functions that chat templates may call.
#ifndef LM_ENGINE_TEXT_TEMPLATE_TEMPLATE_FUNCTIONS_H_
#define LM_ENGINE_TEXT_TEMPLATE_TEMPLATE_FUNCTIONS_H_

#include <cstdint>
#include <string>

#include "absl/time/civil_time.h"
#include "engine/text/template/template_call.h"

namespace lm {

inline constexpr int64_t kTemplateNamespace = 0;  // the renderer's own
inline constexpr int64_t kNumTemplateFunctions = 5;

// REQUIRES: function is in [0, kNumTemplateFunctions).
const std::string& TemplateFunctionName(int64_t function);

// REQUIRES: function is in [1, kNumTemplateFunctions). FailedPrecondition with the template's own
// words for raise_exception.
absl::StatusOr<TemplateValue> CallTemplateFunction(int64_t function,
                                                   const TemplateArguments& arguments,
                                                   absl::CivilSecond now, TemplateBudget* budget);

}  // namespace lm

#endif  // LM_ENGINE_TEXT_TEMPLATE_TEMPLATE_FUNCTIONS_H_
