// The filters of chat templates over lists and dicts.
#ifndef LM_ENGINE_TEXT_TEMPLATE_TEMPLATE_LIST_FILTERS_H_
#define LM_ENGINE_TEXT_TEMPLATE_TEMPLATE_LIST_FILTERS_H_

#include "absl/strings/string_view.h"
#include "engine/text/template/template_call.h"

namespace lm {

// Null where there is none of that name.
TemplateFilter* FindTemplateListFilter(absl::string_view name);

}  // namespace lm

#endif  // LM_ENGINE_TEXT_TEMPLATE_TEMPLATE_LIST_FILTERS_H_
