// Conversations in JSON, as tests/parity/chat_templates.py writes them.
#ifndef LM_TESTS_ENGINE_TEXT_TEMPLATE_CASES_H_
#define LM_TESTS_ENGINE_TEXT_TEMPLATE_CASES_H_

#include <string>

#include "absl/status/statusor.h"
#include "engine/text/chat/chat_template.h"
#include "engine/text/template/template_value.h"

namespace lm {

// The member of a dict, or nullptr.
const TemplateValue* MemberOf(const TemplateValue& dict, absl::string_view key);

// The template `source` with the tokens that a job names.
absl::StatusOr<ChatTemplate> TemplateOf(const TemplateValue& job, absl::string_view source);

// `one` of the job's cases. The text begins with BOS where that is added.
absl::StatusOr<std::string> RenderCase(const ChatTemplate& chat, const TemplateValue& job,
                                       const TemplateValue& one);

}  // namespace lm

#endif  // LM_TESTS_ENGINE_TEXT_TEMPLATE_CASES_H_
