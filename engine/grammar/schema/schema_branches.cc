#include "engine/grammar/schema/schema_branches.h"

#include <algorithm>
#include <string>
#include <vector>

#include "engine/base/checkpoint.h"
#include "engine/base/hash_map.h"
#include "engine/base/status_macros.h"
#include "engine/grammar/schema/schema_keywords.h"
#include "engine/grammar/schema/schema_validator.h"
#include "engine/grammar/schema/schema_values.h"

namespace lm {
namespace {

bool SaysFalse(const SchemaJson* schema) {
  return schema != nullptr && schema->is_boolean() && !schema->boolean();
}

bool ClosedByFalse(const MergedSchema::ObjectPart& part) { return SaysFalse(part.additional); }

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

// Whether one of the part's patterns is known to match the name, or is not known.
bool MayMatch(const MergedSchema::ObjectPart& part, const std::string& name, SchemaWork* work) {
  if (part.patterns == nullptr) return false;
  return std::any_of(part.patterns->members().begin(), part.patterns->members().end(),
                     [&](const Json::Member& member) {
                       work->members += 1;
                       const auto names = work->texts.OfPattern(member.first);
                       return !names.ok() || (*names)->Contains(name);
                     });
}

// Some of what is unevaluated may be there.
bool AllowsUnevaluated(const MergedSchema& schema) {
  return !std::all_of(schema.unevaluated_properties.begin(), schema.unevaluated_properties.end(),
                      SaysFalse);
}

// Whether the compiler never writes such a member: see SchemaCompiler::PropertiesOf. `grows`: more
// may be asked for.
bool NeverWrites(const SchemaDocument& document, const MergedSchema& schema,
                 const std::string& name, bool grows, SchemaWork* work) {
  if (Requires(schema, name) || !PropertyOf(schema, name).empty()) return false;
  bool lists = false, is_open = grows || AllowsUnevaluated(schema);
  for (const MergedSchema::ObjectPart& part : schema.objects) {
    const bool matches = MayMatch(part, name, work);
    if (ClosedByFalse(part) && !matches) return true;
    lists = lists || part.properties != nullptr || part.patterns != nullptr;
    is_open = is_open || matches || part.additional != nullptr;
  }
  const bool is_closed =
      !schema.unevaluated_properties.empty() || (lists && !document.options().additional);
  return is_closed && !is_open;
}

// Whether more may be asked of a member than what `properties` say.
bool MayAskMore(const MergedSchema& schema, const std::string& name, SchemaWork* work) {
  return AllowsUnevaluated(schema) ||
         std::any_of(schema.members.begin(), schema.members.end(),
                     [&name](const auto& member) { return member.first == name; }) ||
         std::any_of(schema.objects.begin(), schema.objects.end(),
                     [&](const MergedSchema::ObjectPart& part) {
                       return (part.additional != nullptr && !part.Lists(name)) ||
                              MayMatch(part, name, work);
                     });
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
// What is asked for besides takes only more away, but for the kinds that keywords imply: so where
// `grows`, more may be written for `a`.
bool NeverFitsAtOnce(const MergedSchema& a, const MergedSchema& b, bool grows, SchemaWork* work) {
  if (a.impossible || b.impossible) return true;
  const uint8_t common = (grows ? KindsOf(a) : WrittenKinds(a)) & KindsOf(b);
  if (common == 0) return true;
  if (a.values && b.values) return HaveOtherValues(a, b, work);
  return (common & ~(kInteger | kFraction)) == 0 &&
         (HaveOtherNumbers(a.numbers, b.numbers) || HaveOtherNumbers(b.numbers, a.numbers));
}

// Whether no object that is written for `a` is valid against `b`.
absl::StatusOr<bool> NoObjectFits(const SchemaDocument& document, const MergedSchema& a,
                                  const MergedSchema& b, bool grows, SchemaWork* work) {
  grows = grows || !a.choices.empty();
  for (const std::string& name : b.required) {
    RETURN_IF_ERROR(Checkpoint());
    if (NeverWrites(document, a, name, grows, work)) return true;
  }
  for (const std::string& name : a.required) {
    RETURN_IF_ERROR(Checkpoint());
    if (Forbids(b, name)) return true;
    const Conjunction in_a = PropertyOf(a, name), in_b = PropertyOf(b, name);
    if (in_a.empty() || in_b.empty()) continue;
    ASSIGN_OR_RETURN(const MergedSchema value_in_a, MergeToTellApart(document, in_a, work));
    ASSIGN_OR_RETURN(const MergedSchema value_in_b, MergeToTellApart(document, in_b, work));
    const bool value_grows = grows || MayAskMore(a, name, work);
    if (NeverFitsAtOnce(value_in_a, value_in_b, value_grows, work)) return true;
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
                               const MergedSchema& b, bool grows, SchemaWork* work) {
  if (NeverFitsAtOnce(a, b, grows, work)) return true;
  if (a.values || b.values) return NoneFits(document, a.values ? a : b, a.values ? b : a, work);
  if (((grows ? KindsOf(a) : WrittenKinds(a)) & b.kinds) != kObject) return false;
  return NoObjectFits(document, a, b, grows, work);
}

bool OppositeBringsMore(const SchemaDocument& document, const SchemaJson& branch,
                        SchemaWork* work) {
  std::vector<const SchemaJson*> open = {&branch};
  HashSet<const SchemaJson*> seen = {&branch};
  bool brings = false;
  auto look_at = [&](const SchemaJson& schema) {
    if (!schema.is_object()) return;
    work->members += 1 + static_cast<int64_t>(schema.size());
    for (const auto& [name, value] : schema.members()) {
      const KeywordInfo* info = FindKeyword(name);
      if (info == nullptr) continue;
      brings = brings || info->keyword == Keyword::kNot || info->keyword == Keyword::kOneOf ||
               info->keyword == Keyword::kThen || info->keyword == Keyword::kDependencies;
      if (info->keyword != Keyword::kRef || !value.is_string()) continue;
      const auto target = document.ResolveBy(name, value, value.string());
      if (target.ok() && seen.insert(*target).second) open.push_back(*target);
    }
  };
  while (!open.empty() && !brings && !work->IsTooMuch()) {
    const SchemaJson& next = *open.back();
    open.pop_back();
    ForEachSchema(next, look_at);
  }
  return brings;
}

}  // namespace lm
