// What lm_extract asks a server for.
#ifndef LM_ENGINE_REMOTE_EXTRACTION_SCHEMA_H_
#define LM_ENGINE_REMOTE_EXTRACTION_SCHEMA_H_

#include "engine/base/json.h"

namespace lm {

// A schema as lm_extract means it: all properties are there, and may be null, and no others are.
Json ExtractionSchema(const Json& schema);

}  // namespace lm

#endif  // LM_ENGINE_REMOTE_EXTRACTION_SCHEMA_H_
