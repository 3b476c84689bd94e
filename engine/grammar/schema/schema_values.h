// Values that a schema spells out, compared as JSON Schema has it: members have no order, 1.0 is 1.
#ifndef LM_ENGINE_GRAMMAR_SCHEMA_SCHEMA_VALUES_H_
#define LM_ENGINE_GRAMMAR_SCHEMA_SCHEMA_VALUES_H_

#include <cstddef>
#include <unordered_set>
#include <vector>

#include "engine/base/json.h"

namespace lm {

bool SameValue(const Json& a, const Json& b);

// The same for values that are the same.
struct ValueHash {
  size_t operator()(const Json* value) const;
};
struct ValueEqual {
  bool operator()(const Json* a, const Json* b) const { return SameValue(*a, *b); }
};
// Of values that outlive it.
using ValueSet = std::unordered_set<const Json*, ValueHash, ValueEqual>;

// The values of `some` that `others` have too, in their order: in time linear in both.
std::vector<const Json*> ValuesInBoth(const std::vector<const Json*>& some,
                                      const std::vector<const Json*>& others);

}  // namespace lm

#endif  // LM_ENGINE_GRAMMAR_SCHEMA_SCHEMA_VALUES_H_
