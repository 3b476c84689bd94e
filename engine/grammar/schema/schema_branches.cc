#include "engine/grammar/schema/schema_branches.h"

#include <algorithm>
#include <string>

#include "engine/base/status_macros.h"
#include "engine/grammar/schema/schema_validator.h"
#include "engine/grammar/schema/schema_values.h"

namespace lm {
namespace {

bool ClosedByFalse(const MergedSchema::ObjectPart& part) {
  return part.additional != nullptr && part.additional->is_boolean() && !part.additional->boolean();
}

bool Requires(const MergedSchema& schema, const std::string& name) {
  return std::find(schema.required.begin(), schema.required.end(), name) != schema.required.end();
}

// What a member of this name must be valid against, as far as `properties` say.
Conjunction PropertyOf(const MergedSchema& schema, const std::string& name) {
  Conjunction conjunction;
  for (const MergedSchema::ObjectPart& part : schema.objects) {
    if (part.properties == nullptr || !part.properties->Has(name)) continue;
    const SchemaPart property{part.properties->Find(name)};
    if (std::find(conjunction.begin(), conjunction.end(), property) == conjunction.end()) {
      conjunction.push_back(property);
    }
  }
  return conjunction;
}

// Whether the compiler never writes such a member: see SchemaCompiler::PropertiesOf.
bool NeverWrites(const SchemaDocument& document, const MergedSchema& schema,
                 const std::string& name) {
  if (Requires(schema, name) || !PropertyOf(schema, name).empty()) return false;
  bool has_properties = false, says_additional = false;
  for (const MergedSchema::ObjectPart& part : schema.objects) {
    if (ClosedByFalse(part) && part.other_patterns.empty()) return true;
    if (part.HasPatterns()) return false;
    has_properties = has_properties || part.properties != nullptr;
    says_additional = says_additional || part.additional != nullptr;
  }
  return has_properties && !says_additional && !document.options().additional;
}

// Whether no object with such a member is valid.
bool Forbids(const MergedSchema& schema, const std::string& name) {
  if (std::find(schema.forbidden.begin(), schema.forbidden.end(), name) != schema.forbidden.end()) {
    return true;
  }
  return std::any_of(schema.objects.begin(), schema.objects.end(),
                     [&name](const MergedSchema::ObjectPart& part) {
                       return ClosedByFalse(part) && !part.HasPatterns() && !part.Lists(name);
                     });
}

bool HaveOtherValues(const MergedSchema& a, const MergedSchema& b, SchemaWork* work) {
  work->members += static_cast<int64_t>(a.values->size() + b.values->size());
  return ValuesInBoth(*a.values, *b.values).empty();
}

bool HaveOtherNumbers(const NumberRange& a, const NumberRange& b) {
  if (!a.lower || !b.upper) return false;
  const int order = Compare(a.lower->value, b.upper->value);
  return order > 0 || (order == 0 && !(a.lower->inclusive && b.upper->inclusive));
}

uint8_t KindsOf(const MergedSchema& schema) {
  if (!schema.values) return schema.kinds;
  uint8_t kinds = 0;
  for (const SchemaJson* value : *schema.values) kinds |= KindOf(*value);
  return kinds & schema.kinds;
}

// Whether no value that is written for `a` is valid against `b`, by types, values and ranges alone.
// An anyOf that is still open only takes more away.
bool NeverFitsAtOnce(const MergedSchema& a, const MergedSchema& b, SchemaWork* work) {
  if (a.impossible || b.impossible) return true;
  const uint8_t common = WrittenKinds(a) & KindsOf(b);
  if (common == 0) return true;
  if (a.values && b.values) return HaveOtherValues(a, b, work);
  return (common & ~(kInteger | kFraction)) == 0 &&
         (HaveOtherNumbers(a.numbers, b.numbers) || HaveOtherNumbers(b.numbers, a.numbers));
}

// Whether no object that is written for `a` is valid against `b`.
absl::StatusOr<bool> NoObjectFits(const SchemaDocument& document, const MergedSchema& a,
                                  const MergedSchema& b, SchemaWork* work) {
  // An open choice may write more, but forbids what is forbidden.
  for (const std::string& name : b.required) {
    if (a.choices.empty() && NeverWrites(document, a, name)) return true;
  }
  for (const std::string& name : a.required) {
    if (Forbids(b, name)) return true;
    const Conjunction in_a = PropertyOf(a, name), in_b = PropertyOf(b, name);
    if (in_a.empty() || in_b.empty()) continue;
    ASSIGN_OR_RETURN(const MergedSchema value_in_a, MergeToTellApart(document, in_a, work));
    ASSIGN_OR_RETURN(const MergedSchema value_in_b, MergeToTellApart(document, in_b, work));
    if (NeverFitsAtOnce(value_in_a, value_in_b, work)) return true;
  }
  return false;
}

// Whether no value of `listed` is valid against `other`.
bool NoneFits(const SchemaDocument& document, const MergedSchema& listed, const MergedSchema& other,
              SchemaWork* work) {
  return std::none_of(listed.values->begin(), listed.values->end(), [&](const SchemaJson* value) {
    return std::all_of(other.parts.begin(), other.parts.end(), [&](const SchemaPart& part) {
      // What cannot be judged may fit.
      return IsValidButSettled(document, part, *value, work).value_or(true);
    });
  });
}

}  // namespace

Conjunction AskedOfMember(const MergedSchema& schema, const std::string& name) {
  Conjunction conjunction = PropertyOf(schema, name);
  for (const auto& [member, part] : schema.members) {
    if (member == name) conjunction.push_back(part);
  }
  return conjunction;
}

uint8_t WrittenKinds(const MergedSchema& schema) { return KindsOf(schema) & schema.implied_kinds; }

absl::StatusOr<bool> NeverFits(const SchemaDocument& document, const MergedSchema& a,
                               const MergedSchema& b, SchemaWork* work) {
  if (NeverFitsAtOnce(a, b, work)) return true;
  if (a.values || b.values) return NoneFits(document, a.values ? a : b, a.values ? b : a, work);
  if ((WrittenKinds(a) & b.kinds) != kObject) return false;
  return NoObjectFits(document, a, b, work);
}

}  // namespace lm
