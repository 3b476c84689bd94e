// Whether a value that a schema spells out (an enum, a const, a property's name) is valid against
// schemas: exactly, as JSON Schema has it.
#ifndef LM_ENGINE_GRAMMAR_SCHEMA_SCHEMA_VALIDATOR_H_
#define LM_ENGINE_GRAMMAR_SCHEMA_SCHEMA_VALIDATOR_H_

#include "absl/status/statusor.h"
#include "engine/grammar/schema/schema_document.h"
#include "engine/grammar/schema/schema_part.h"
#include "engine/grammar/schema/schema_work.h"

namespace lm {

// InvalidArgument with the pointer of a keyword that cannot be judged. *work counts what was looked
// at.
absl::StatusOr<bool> IsValid(const SchemaDocument& document, const SchemaPart& part,
                             const SchemaJson& value, SchemaWork* work);
// Without the choices that the part has settled: their alternatives are beside it.
absl::StatusOr<bool> IsValidButSettled(const SchemaDocument& document, const SchemaPart& part,
                                       const SchemaJson& value, SchemaWork* work);

}  // namespace lm

#endif  // LM_ENGINE_GRAMMAR_SCHEMA_SCHEMA_VALIDATOR_H_
