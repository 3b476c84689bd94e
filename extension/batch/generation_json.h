// The JSON object in which lm_try, and on_error 'json', report a generation:
//   {"value":"Lily","error":null,"finish":"stop","tokens_in":12,"tokens_cached":8,"tokens_out":2}
#ifndef LM_EXTENSION_BATCH_GENERATION_JSON_H_
#define LM_EXTENSION_BATCH_GENERATION_JSON_H_

#include <string>

#include "engine/runtime/request.h"

namespace lm {

// Of a generation that is over, well or not, or that never began.
std::string GenerationJson(const Generation& generation);

}  // namespace lm

#endif  // LM_EXTENSION_BATCH_GENERATION_JSON_H_
