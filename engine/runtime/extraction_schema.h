// What lm_extract asks a server for.
#ifndef LM_ENGINE_RUNTIME_EXTRACTION_SCHEMA_H_
#define LM_ENGINE_RUNTIME_EXTRACTION_SCHEMA_H_

#include "absl/status/statusor.h"
#include "engine/base/json.h"
#include "engine/runtime/generation_options.h"

namespace lm {

// The constraint's schema as lm_extract means it (CompileExtractionSchema), in words that every
// server knows: in each object, however deep, all properties are there, those that are not required
// may be null, and there are no others where the schema speaks of none. A value that is valid
// against it is an answer, but for what cannot be said so: minProperties and maxProperties, which
// count no nulls, are left out, and conditions and opposites stay as they are. Errors: as
// SchemaDocument::Parse.
absl::StatusOr<Json> ExtractionSchema(const AnswerConstraint& constraint);

}  // namespace lm

#endif  // LM_ENGINE_RUNTIME_EXTRACTION_SCHEMA_H_
