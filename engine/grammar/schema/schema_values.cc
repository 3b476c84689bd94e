#include "engine/grammar/schema/schema_values.h"

#include <algorithm>
#include <iterator>

#include "absl/hash/hash.h"

namespace lm {

bool SameValue(const Json& a, const Json& b) {
  // Recursion is as deep as the schema's text may be.
  if (a.is_array() && b.is_array()) {
    return std::equal(a.array().begin(), a.array().end(), b.array().begin(), b.array().end(),
                      SameValue);
  }
  if (!a.is_object() || !b.is_object()) return a == b;
  if (a.size() != b.size()) return false;
  return std::all_of(a.members().begin(), a.members().end(), [&b](const Json::Member& member) {
    const Json* other = b.Find(member.first);
    return other != nullptr && SameValue(member.second, *other);
  });
}

size_t ValueHash::operator()(const Json* value) const {
  if (value->is_boolean()) return absl::HashOf(value->boolean());
  if (value->is_number()) return absl::HashOf(value->number());
  if (value->is_string()) return absl::HashOf(value->string());
  size_t hash = value->size();
  if (value->is_array()) {
    for (const Json& element : value->array()) hash = absl::HashOf(hash, (*this)(&element));
  } else if (value->is_object()) {
    for (const auto& [name, member] : value->members())
      hash += absl::HashOf(name, (*this)(&member));
  }
  return hash;
}

std::vector<const Json*> ValuesInBoth(const std::vector<const Json*>& some,
                                      const std::vector<const Json*>& others) {
  std::vector<const Json*> both;
  // Few are compared more quickly than hashed.
  constexpr size_t kFew = 8;
  if (others.size() <= kFew) {
    std::copy_if(some.begin(), some.end(), std::back_inserter(both), [&](const Json* value) {
      return std::any_of(others.begin(), others.end(),
                         [value](const Json* other) { return SameValue(*value, *other); });
    });
    return both;
  }
  const ValueSet set(others.begin(), others.end());
  std::copy_if(some.begin(), some.end(), std::back_inserter(both),
               [&](const Json* value) { return set.contains(value); });
  return both;
}

}  // namespace lm
