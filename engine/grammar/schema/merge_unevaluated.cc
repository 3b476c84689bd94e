// unevaluatedProperties and unevaluatedItems: what is asked of the members and items about which
// nothing else of their schema speaks.
//
// What speaks are the keywords of the schema itself and of those that it applies to the same value
// ($ref, allOf, a branch of anyOf or oneOf that is valid, if, then, else, dependentSchemas; never
// `not`). Once all choices are settled, those that are known to be valid stand among the parts. A
// branch that may be valid without being asked for is left to the choice in which it is: so what is
// written is valid, and anyOf is settled by sets of branches.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/grammar/schema/schema_merger.h"

namespace lm {

bool SchemaMerger::Holds(const SchemaJson& schema, bool negated) const {
  if (schema.is_boolean()) return schema.boolean() != negated;
  // What asks for nothing is not among the parts.
  if (schema.is_object() && Asking(schema).empty()) return !negated;
  return std::any_of(expanded_.begin(), expanded_.end(), [&](const SchemaPart& part) {
    return part.schema == &schema && part.negated == negated &&
           part.asks == SchemaPart::Asks::kValid && part.keyword < 0 && part.member < 0;
  });
}

std::vector<Conjunction> SchemaMerger::Subsets(const SchemaJson& branches) const {
  std::vector<Conjunction> subsets;
  for (size_t set = 1; set < size_t{1} << branches.size(); ++set) {
    Conjunction& subset = subsets.emplace_back();
    for (size_t i = 0; i < branches.size(); ++i) {
      if ((set >> i & 1) != 0) subset.push_back({&branches.array()[i]});
    }
  }
  return subsets;
}

absl::Status SchemaMerger::AddApplied(const SchemaJson& schema,
                                      std::vector<const SchemaJson*>* applied) const {
  for (const int32_t number : Asking(schema)) {
    const auto& [name, value] = schema.members()[number];
    switch (FindKeyword(name)->keyword) {
      case Keyword::kRef: {
        ASSIGN_OR_RETURN(const SchemaJson* target,
                         document_.ResolveBy(name, value, value.string()));
        applied->push_back(target);
        break;
      }
      case Keyword::kAllOf:
        for (const SchemaJson& branch : value.array()) applied->push_back(&branch);
        break;
      case Keyword::kAnyOf:
      case Keyword::kOneOf:
        for (const SchemaJson& branch : value.array()) {
          if (Holds(branch)) applied->push_back(&branch);
        }
        break;
      case Keyword::kDependencies:
        for (const SchemaPart& part : expanded_) {
          if (part.asks == SchemaPart::Asks::kPresent && !part.negated && part.schema == &schema &&
              part.keyword == number) {
            applied->push_back(&value.members()[part.member].second);
          }
        }
        break;
      default:
        break;
    }
  }
  if (const SchemaJson* condition = schema.Find("if");
      condition != nullptr && !document_.RefStandsAlone(schema)) {
    const bool yes = Holds(*condition), no = Holds(*condition, /*negated=*/true);
    const SchemaJson* follows = yes ? schema.Find("then") : no ? schema.Find("else") : nullptr;
    if (yes) applied->push_back(condition);
    if (follows != nullptr) applied->push_back(follows);
  }
  return absl::OkStatus();
}

absl::StatusOr<SchemaMerger::Evaluated> SchemaMerger::EvaluatedBy(
    const Unevaluated& unevaluated) const {
  Evaluated evaluated;
  std::vector<const SchemaJson*> applied = {unevaluated.schema};
  HashSet<const SchemaJson*> seen;
  for (size_t i = 0; i < applied.size(); ++i) {
    const SchemaJson& schema = *applied[i];
    if (!schema.is_object() || !seen.insert(&schema).second) continue;
    RETURN_IF_ERROR(AddApplied(schema, &applied));
    work_.members += 1 + static_cast<int64_t>(schema.size() + expanded_.size());
    const SchemaJson* items = schema.Find("items");
    const bool items_are_listed = items != nullptr && items->is_array();
    for (const int32_t number : Asking(schema)) {
      const auto& [name, value] = schema.members()[number];
      const bool is_outer = &schema != unevaluated.schema;
      switch (FindKeyword(name)->keyword) {
        case Keyword::kProperties:
          evaluated.properties.push_back(&value);
          break;
        case Keyword::kPatternProperties:
          evaluated.patterns.push_back(&value);
          break;
        case Keyword::kAdditionalProperties:
          evaluated.all_properties = true;
          break;
        case Keyword::kUnevaluatedProperties:
          evaluated.all_properties = evaluated.all_properties || is_outer;
          break;
        case Keyword::kPrefixItems:
          evaluated.items = std::max(evaluated.items, value.size());
          break;
        case Keyword::kItems:
          if (items_are_listed) {
            evaluated.items = std::max(evaluated.items, value.size());
          } else {
            evaluated.all_items = true;
          }
          break;
        case Keyword::kAdditionalItems:
          evaluated.all_items = evaluated.all_items || items_are_listed;
          break;
        case Keyword::kUnevaluatedItems:
          evaluated.all_items = evaluated.all_items || is_outer;
          break;
        case Keyword::kContains:
          evaluated.contains = &value;
          break;
        default:
          break;
      }
    }
  }
  return evaluated;
}

absl::Status SchemaMerger::AddUnevaluated() {
  for (const Unevaluated& one : unevaluated_) {
    ASSIGN_OR_RETURN(Evaluated evaluated, EvaluatedBy(one));
    const bool asks_nothing = one.value->is_boolean() && one.value->boolean();
    if (one.keyword == Keyword::kUnevaluatedItems) {
      if (evaluated.all_items || asks_nothing) continue;
      if (evaluated.contains != nullptr) {
        Refuse(kArray, *one.value, "unevaluatedItems where contains speaks is not supported");
        continue;
      }
      MergedSchema::ArrayPart part;
      part.rest = SchemaPart{one.value};
      part.before_rest = evaluated.items;
      merged_.arrays.push_back(std::move(part));
    } else if (!evaluated.all_properties) {
      MergedSchema::ObjectPart part;
      part.additional = one.value;
      part.other_properties = std::move(evaluated.properties);
      part.other_patterns = std::move(evaluated.patterns);
      merged_.objects.push_back(std::move(part));
    }
  }
  return absl::OkStatus();
}

}  // namespace lm
