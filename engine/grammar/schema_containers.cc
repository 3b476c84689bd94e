// Arrays and objects of SchemaCompiler.
#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/hash_map.h"
#include "engine/base/status_macros.h"
#include "engine/grammar/schema_compiler.h"

namespace lm {

Fragment SchemaCompiler::Array(const MergedSchema& schema) {
  // Item i must be valid against the i-th of each prefix, or what comes behind it.
  size_t prefix = 0;
  for (const MergedSchema::ArrayPart& part : schema.arrays) {
    if (part.prefix != nullptr) prefix = std::max(prefix, part.prefix->size());
  }
  auto schemas = [&](size_t i) {
    Conjunction conjunction;
    for (const MergedSchema::ArrayPart& part : schema.arrays) {
      const size_t own = part.prefix == nullptr ? 0 : part.prefix->size();
      work_ += 1;
      if (i < own) {
        conjunction.push_back({&part.prefix->array()[i]});
      } else if (part.rest != nullptr) {
        conjunction.push_back({part.rest});
      }
    }
    return conjunction;
  };
  // A schema that lets no item be there.
  auto refusal = [&](size_t i) -> const SchemaJson* {
    for (const SchemaPart& part : schemas(i)) {
      if (part.schema->is_boolean() && !part.schema->boolean()) return part.schema;
    }
    return nullptr;
  };
  auto item = [&](size_t i) {
    Conjunction conjunction = schemas(i);
    if (!conjunction.empty()) return RuleOf(std::move(conjunction));
    const RuleId rule = builder_.AddRule("any item");
    builder_.Define(rule, json_.AnyValue());
    return rule;
  };
  const int64_t min = schema.min_items;
  const std::optional<int64_t> max = schema.max_items;
  if (max && *max < min) {
    return builder_.Nothing(Together({schema.at.min_items, schema.at.max_items}));
  }
  for (int64_t i = 0; i < std::min<int64_t>(min, static_cast<int64_t>(prefix) + 1); ++i) {
    if (const SchemaJson* refused = refusal(static_cast<size_t>(i)); refused != nullptr) {
      return builder_.Nothing(Together({schema.at.min_items, refused}));
    }
  }
  // Drawn from the end. from[i] is the place behind i items; the last one is repeated where there
  // is no end, or it is where no more may follow.
  const NodeId end = builder_.AddLink();
  const NodeId close = builder_.AddBytes(']', ']', end);
  auto member = [&](bool is_first, RuleId rule, NodeId next) {
    const NodeId call = builder_.AddCall(rule, next);
    if (is_first) return call;
    return builder_.AddBytes(',', ',', json_.BehindSeparator(call));
  };
  const RuleId rest = item(prefix);
  const int64_t last = max ? *max : std::max<int64_t>({min, static_cast<int64_t>(prefix), 1});
  NodeId place = close;
  if (!max) {
    const NodeId loop = builder_.AddLink();
    place = builder_.AddSplit(member(false, rest, loop), close);
    builder_.Connect(loop, place);
  }
  for (int64_t i = last; i-- > 0 && builder_.status().ok();) {
    const RuleId rule = i < static_cast<int64_t>(prefix) ? item(static_cast<size_t>(i)) : rest;
    place = member(i == 0, rule, place);
    if (i >= min) place = builder_.AddSplit(place, close);
  }
  return {builder_.AddBytes('[', '[', place), end};
}

RuleId SchemaCompiler::MemberRule(Fragment key, Fragment value) {
  const RuleId rule = builder_.AddRule("a member");
  builder_.Define(rule, builder_.Concat({key, json_.Colon(), value}));
  return rule;
}

absl::StatusOr<std::vector<SchemaCompiler::Property>> SchemaCompiler::PropertiesOf(
    const MergedSchema& schema, std::optional<RuleId>* additional, std::string* why) {
  // The schemas that each part has for each name.
  std::vector<std::string> names;
  HashSet<std::string> named;
  std::vector<HashMap<std::string, const SchemaJson*>> by_name(schema.objects.size());
  bool has_properties = false, says_additional = false;
  for (size_t i = 0; i < schema.objects.size(); ++i) {
    const MergedSchema::ObjectPart& part = schema.objects[i];
    says_additional = says_additional || part.additional != nullptr;
    if (part.properties == nullptr) continue;
    has_properties = true;
    for (const auto& [name, property] : part.properties->members()) {
      by_name[i][name] = &property;
      if (named.insert(name).second) names.push_back(name);
    }
  }
  const HashSet<std::string> required(schema.required.begin(), schema.required.end());
  for (const std::string& name : schema.required) {
    if (named.insert(name).second) names.push_back(name);
  }
  // What a member must be valid against whose name only some parts know; for one that none knows,
  // `name` is null.
  auto value_rule = [&](const std::string* name) {
    Conjunction conjunction;
    const bool is_required = name != nullptr && required.contains(*name);
    for (size_t i = 0; i < schema.objects.size(); ++i) {
      work_ += 1;
      const SchemaJson* applies = schema.objects[i].additional;
      if (name != nullptr) {
        if (auto at = by_name[i].find(*name); at != by_name[i].end()) applies = at->second;
      }
      if (is_required && applies != nullptr && applies->is_boolean() && !applies->boolean()) {
        *why = Together({schema.at.required, applies});
      }
      const SchemaPart part{applies};
      const bool is_new =
          std::find(conjunction.begin(), conjunction.end(), part) == conjunction.end();
      if (applies != nullptr && is_new) conjunction.push_back(part);
    }
    if (!conjunction.empty()) return RuleOf(std::move(conjunction));
    const RuleId rule = builder_.AddRule("any member's value");
    builder_.Define(rule, json_.AnyValue());
    return rule;
  };
  std::vector<Property> properties;
  for (const std::string& name : names) {
    const Fragment key = builder_.Literal(JsonString(name));
    Fragment value = builder_.Call(value_rule(&name));
    const bool is_required = required.contains(name);
    if (absent_is_null_ && !is_required) value = builder_.Alternate({value, json_.Null()});
    properties.push_back({MemberRule(key, value), is_required || absent_is_null_});
  }
  // Closed where only properties are listed.
  const bool is_open = says_additional || !has_properties;
  const bool is_false = std::any_of(
      schema.objects.begin(), schema.objects.end(), [](const MergedSchema::ObjectPart& part) {
        return part.additional != nullptr && part.additional->is_boolean() &&
               !part.additional->boolean();
      });
  if (is_open && !is_false) {
    *additional = MemberRule(json_.KeyExcept(names), builder_.Call(value_rule(nullptr)));
  }
  return properties;
}

absl::StatusOr<Fragment> SchemaCompiler::Object(const MergedSchema& schema) {
  std::optional<RuleId> additional;
  std::string why;
  ASSIGN_OR_RETURN(const std::vector<Property> properties, PropertiesOf(schema, &additional, &why));
  if (!why.empty()) return builder_.Nothing(std::move(why));
  const MergedSchema::Places& at = schema.at;
  const int64_t num_required =
      std::count_if(properties.begin(), properties.end(),
                    [](const Property& property) { return property.is_required; });
  const int64_t min = schema.min_properties <= num_required ? 0 : schema.min_properties;
  constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();
  int64_t max = schema.max_properties.value_or(kNoLimit);
  if (!additional && max >= static_cast<int64_t>(properties.size())) max = kNoLimit;
  if (max < num_required) return builder_.Nothing(Together({at.required, at.max_properties}));
  if (max < min) return builder_.Nothing(Together({at.min_properties, at.max_properties}));
  if (!additional && min > static_cast<int64_t>(properties.size())) {
    return builder_.Nothing(absl::StrCat(Together({at.min_properties}), ": there can be only ",
                                         properties.size(), " properties"));
  }
  // Nothing keeps an additional key from being written twice, which counts once.
  if (additional && min > num_required + 1) {
    return document_.Error(*at.min_properties,
                           "minProperties is not supported above one more than what is required, "
                           "where additional properties are allowed");
  }
  // Drawn from the end. places[count] stands before the property that is being looked at, with
  // `count` members written; counts that make no difference are one.
  const NodeId end = builder_.AddLink();
  const NodeId close = builder_.AddBytes('}', '}', end);
  const int64_t top = max < kNoLimit ? max : std::max<int64_t>(min, 1);
  auto after = [&](int64_t count) { return std::min(count + 1, top); };
  auto member = [&](int64_t count, RuleId rule, NodeId next) {
    const NodeId call = builder_.AddCall(rule, next);
    if (count == 0) return call;
    return builder_.AddBytes(',', ',', json_.BehindSeparator(call));
  };
  std::vector<NodeId> places(top + 1);
  for (int64_t count = top; count >= 0; --count) {
    const NodeId place = builder_.AddLink();
    std::vector<NodeId> ways;
    places[count] = place;
    if (additional && count < max) {
      ways.push_back(member(count, *additional, places[after(count)]));
    }
    if (count >= min) ways.push_back(close);
    builder_.Connect(place, builder_.AddFork(ways));
  }
  for (size_t i = properties.size(); i-- > 0;) {
    std::vector<NodeId> before(top + 1);
    for (int64_t count = 0; count <= top; ++count) {
      std::vector<NodeId> ways;
      if (count < max) {
        ways.push_back(member(count, properties[i].rule, places[after(count)]));
      }
      if (!properties[i].is_required) ways.push_back(places[count]);
      before[count] = builder_.AddFork(ways);
    }
    places = std::move(before);
    RETURN_IF_ERROR(builder_.status());
  }
  return Fragment{builder_.AddBytes('{', '{', places[0]), end};
}

}  // namespace lm
