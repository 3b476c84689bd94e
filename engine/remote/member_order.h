// The order in which a schema names the members of objects.
#ifndef LM_ENGINE_REMOTE_MEMBER_ORDER_H_
#define LM_ENGINE_REMOTE_MEMBER_ORDER_H_

#include "absl/strings/string_view.h"
#include "engine/base/json.h"

namespace lm {

// The same value, but that in each object, however deep, the members that the schema has in
// `properties` come first, in its order: through $ref within the schema, allOf, what it says of
// items and additional properties, and the first branch of an anyOf or oneOf that has properties
// for all of an object's members, and for one that it requires or spells out no other. Where the
// schema says it in other ways, or cannot be read, the order stays.
Json InMemberOrder(const Json& value, absl::string_view schema);

// The same, and properties that need not be there, and are not, are null: CompileExtractionSchema.
Json WithNullsInMemberOrder(const Json& value, absl::string_view schema);

}  // namespace lm

#endif  // LM_ENGINE_REMOTE_MEMBER_ORDER_H_
