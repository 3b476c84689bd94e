// FieldCensus: what lm_explain finds out about the prompts that lm_prompt makes: their fields, and
// how they would be in another order.
#ifndef LM_EXTENSION_CONNECTION_FIELD_CENSUS_H_
#define LM_EXTENSION_CONNECTION_FIELD_CENSUS_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/text/chat/field_order.h"

namespace lm {

struct CountedForm {
  FieldOrder fields;  // of {{*}}
  // Once set, lm_prompt has them in this order, whatever it is asked for.
  std::optional<std::vector<std::string>> order;
};

// By the template's text. Not thread-safe.
using FieldCensus = std::map<std::string, CountedForm, std::less<>>;

}  // namespace lm

#endif  // LM_EXTENSION_CONNECTION_FIELD_CENSUS_H_
