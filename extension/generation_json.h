// The JSON object in which lm_try, and on_error 'json', report a generation:
//   {"value":"Lily","error":null,"finish":"stop","tokens_in":12,"tokens_cached":8,"tokens_out":2}
#ifndef LM_EXTENSION_GENERATION_JSON_H_
#define LM_EXTENSION_GENERATION_JSON_H_

#include <string>

#include "absl/status/status.h"
#include "engine/runtime/request.h"

namespace lm {

// Of a generation that is over, well or not.
std::string GenerationJson(const Generation& generation);

// Of one that never began.
std::string FailureJson(const absl::Status& status);

}  // namespace lm

#endif  // LM_EXTENSION_GENERATION_JSON_H_
