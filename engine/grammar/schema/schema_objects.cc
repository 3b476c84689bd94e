// Objects of SchemaCompiler.
#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/checkpoint.h"
#include "engine/base/hash_map.h"
#include "engine/base/status_macros.h"
#include "engine/grammar/schema/schema_compiler.h"
#include "engine/grammar/schema/schema_validator.h"
#include "engine/grammar/text_set.h"

namespace lm {
namespace {

// Kinds of keys, by the patterns that they match.
constexpr size_t kMaxKeyClasses = 64;

bool IsFalse(const SchemaJson* schema) {
  return schema != nullptr && schema->is_boolean() && !schema->boolean();
}

}  // namespace

RuleId SchemaCompiler::MemberRule(Fragment key, Fragment value, absl::string_view name) {
  const RuleId rule = builder_.AddRule(name);
  builder_.Define(rule, builder_.Concat({key, json_.Colon(), value}));
  return rule;
}

RuleId SchemaCompiler::NamedMember(const std::string& name, RuleId value, bool may_be_null) {
  auto [at, is_new] = named_members_.try_emplace({name, {value, may_be_null}}, -1);
  if (is_new) {
    Fragment text = builder_.Call(value);
    if (may_be_null) text = builder_.Alternate({text, json_.Null()});
    const auto known = places_.find(value);
    const SchemaJson* place = known == places_.end() ? nullptr : known->second;
    at->second = MemberRule(builder_.Literal(JsonString(name)), text, place ? "" : "any value");
    if (place != nullptr) places_[at->second] = place;
  }
  return at->second;
}

RuleId SchemaCompiler::NullMember(const std::string& name) {
  return MemberRule(builder_.Literal(JsonString(name)), json_.Null());
}

// What a member of that name must be valid against; `false` in it where it may not be there.
absl::StatusOr<Conjunction> SchemaCompiler::MemberOf(const MergedSchema& schema,
                                                     const PropertyIndex& index,
                                                     const std::string& name) {
  Conjunction conjunction;
  for (size_t i = 0; i < schema.objects.size(); ++i) {
    work_.members += 1;
    const MergedSchema::ObjectPart& part = schema.objects[i];
    bool is_known = false;
    if (auto at = index[i].find(name); at != index[i].end()) {
      AddPartTo({at->second}, &conjunction);
      is_known = true;
    }
    is_known = is_known || part.Lists(name);
    for (const SchemaJson* patterns : part.other_patterns) {
      for (const auto& [pattern, value] : patterns->members()) {
        if (is_known) break;
        ASSIGN_OR_RETURN(const SharedTextSet keys, PatternSet(value, pattern));
        is_known = keys->Contains(name);
      }
    }
    if (part.patterns != nullptr) {
      for (const auto& [pattern, value] : part.patterns->members()) {
        ASSIGN_OR_RETURN(const SharedTextSet keys, PatternSet(value, pattern));
        if (!keys->Contains(name)) continue;
        AddPartTo({&value}, &conjunction);
        is_known = true;
      }
    }
    if (!is_known && part.additional != nullptr) AddPartTo({part.additional}, &conjunction);
  }
  for (const auto& [member, part] : schema.members) {
    if (member == name) AddPartTo(part, &conjunction);
  }
  return conjunction;
}

absl::StatusOr<bool> SchemaCompiler::MayBeNamed(const MergedSchema& schema,
                                                const std::string& name) {
  if (std::find(schema.forbidden.begin(), schema.forbidden.end(), name) != schema.forbidden.end()) {
    return false;
  }
  for (const SchemaJson* names : schema.names) {
    ASSIGN_OR_RETURN(const bool valid, IsValid(document_, {names}, SchemaJson(name), &work_));
    if (!valid) return false;
  }
  return true;
}

absl::StatusOr<std::vector<SchemaCompiler::Property>> SchemaCompiler::PropertiesOf(
    const MergedSchema& schema, std::optional<RuleId>* additional, std::string* why) {
  // The names that some part knows.
  std::vector<std::string> names;
  HashSet<std::string> named;
  PropertyIndex index(schema.objects.size());
  for (size_t i = 0; i < schema.objects.size(); ++i) {
    const SchemaJson* listed = schema.objects[i].properties;
    if (listed == nullptr) continue;
    for (const auto& [name, property] : listed->members()) {
      index[i][name] = &property;
      if (named.insert(name).second) names.push_back(name);
    }
  }
  const HashSet<std::string> required(schema.required.begin(), schema.required.end());
  for (const std::string& name : schema.required) {
    if (named.insert(name).second) names.push_back(name);
  }
  for (const auto& [name, part] : schema.members) {
    if (named.insert(name).second) names.push_back(name);
  }
  const bool counts = schema.min_properties > 0 || schema.max_properties;
  std::vector<Property> properties;
  for (const std::string& name : names) {
    RETURN_IF_ERROR(Checkpoint());
    ASSIGN_OR_RETURN(const bool may_be, MayBeNamed(schema, name));
    const bool is_required = required.contains(name);
    const bool may_be_null = absent_is_null_ && !is_required;
    if (!may_be) {
      if (is_required) *why = Together({schema.at.required});
      if (may_be_null) properties.push_back({-1, false, NullMember(name)});
      continue;
    }
    ASSIGN_OR_RETURN(Conjunction conjunction, MemberOf(schema, index, name));
    if (schema.only_listed && schema.opposed.contains(name) &&
        std::all_of(conjunction.begin(), conjunction.end(),
                    [](const SchemaPart& part) { return part.negated; })) {
      *why = Together({conjunction.front().schema});
      continue;
    }
    for (const SchemaPart& part : conjunction) {
      if (is_required && IsFalse(part.schema) && !part.negated) {
        *why = Together({schema.at.required, part.schema});
      }
    }
    const RuleId value = ValueRule(std::move(conjunction));
    if (may_be_null && counts) {
      properties.push_back({NamedMember(name, value, false), false, NullMember(name)});
    } else {
      properties.push_back({NamedMember(name, value, may_be_null), is_required || may_be_null});
    }
  }
  for (const std::string& name : schema.forbidden) {
    if (named.insert(name).second) names.push_back(name);
  }
  ASSIGN_OR_RETURN(*additional, OtherMember(schema, names));
  return properties;
}

absl::StatusOr<std::optional<RuleId>> SchemaCompiler::OtherMember(
    const MergedSchema& schema, const std::vector<std::string>& names) {
  bool lists = false, says_additional = false, has_patterns = false;
  for (const MergedSchema::ObjectPart& part : schema.objects) {
    says_additional = says_additional || part.additional != nullptr;
    has_patterns = has_patterns || part.patterns != nullptr;
    lists = lists || part.properties != nullptr || part.patterns != nullptr;
  }
  // Closed where only properties and patterns are listed.
  const bool is_open = says_additional || !lists || document_.options().additional;
  if (!has_patterns && schema.names.empty()) {
    Conjunction conjunction;
    for (const MergedSchema::ObjectPart& part : schema.objects) {
      if (IsFalse(part.additional)) return std::optional<RuleId>();
      if (part.additional != nullptr) AddPartTo({part.additional}, &conjunction);
    }
    if (!is_open) return std::optional<RuleId>();
    return MemberRule(json_.KeyExcept(names), builder_.Call(ValueRule(std::move(conjunction))));
  }
  return MemberByPatterns(schema, names, is_open);
}

absl::StatusOr<TextSet> SchemaCompiler::KeysOf(const MergedSchema& schema, const MergedSchema& name,
                                               const std::vector<std::string>& names) {
  if (name.impossible || (name.kinds & kString) == 0) return TextSet::Of({});
  if (!name.choices.empty()) {
    return document_.Error(*schema.names.front(),
                           "propertyNames with several alternatives is not supported");
  }
  ASSIGN_OR_RETURN(TextSet keys, StringSet(name));
  if (names.empty()) return keys;
  absl::StatusOr<TextSet> others = TextSet::Of(names);
  if (others.ok()) others = keys.Minus(*others);
  if (!others.ok()) return RegexError(*schema.parts.back().schema, others.status());
  return others;
}

absl::StatusOr<std::optional<RuleId>> SchemaCompiler::MemberOfKeys(
    const MergedSchema& schema, const std::vector<const SchemaJson*>& keys,
    const std::vector<std::string>& names, bool is_open) {
  const HashSet<std::string> named(names.begin(), names.end());
  const PropertyIndex no_properties(schema.objects.size());
  // Keys apart by what is asked of their members.
  std::vector<std::pair<Conjunction, std::vector<std::string>>> classes;
  HashMap<Conjunction, size_t> numbers;
  for (const SchemaJson* key : keys) {
    RETURN_IF_ERROR(Checkpoint());
    if (!key->is_string() || named.contains(key->string())) continue;
    ASSIGN_OR_RETURN(Conjunction asked, MemberOf(schema, no_properties, key->string()));
    if (asked.empty() && !is_open) continue;
    if (std::any_of(asked.begin(), asked.end(),
                    [](const SchemaPart& part) { return IsFalse(part.schema); })) {
      continue;
    }
    const auto [at, is_new] = numbers.try_emplace(asked, classes.size());
    if (is_new) classes.emplace_back(std::move(asked), std::vector<std::string>());
    classes[at->second].second.push_back(JsonString(key->string()));
  }
  std::vector<Fragment> members;
  for (auto& [asked, texts] : classes) {
    const Fragment value = builder_.Call(ValueRule(std::move(asked)));
    members.push_back(builder_.Call(MemberRule(builder_.AnyLiteral(std::move(texts)), value)));
  }
  return AnotherMember(members);
}

std::optional<RuleId> SchemaCompiler::AnotherMember(const std::vector<Fragment>& members) {
  if (members.empty()) return std::nullopt;
  const RuleId rule = builder_.AddRule("another member");
  builder_.Define(rule, builder_.Alternate(members));
  return rule;
}

absl::StatusOr<std::optional<RuleId>> SchemaCompiler::MemberByPatterns(
    const MergedSchema& schema, const std::vector<std::string>& names, bool is_open) {
  // Keys that no property has, apart by the patterns that they match.
  struct KeyClass {
    TextSet keys;
    HashSet<std::string> patterns;
  };
  Conjunction asked;
  for (const SchemaJson* one : schema.names) AddPartTo({one}, &asked);
  ASSIGN_OR_RETURN(const MergedSchema name, Merge(document_, asked, &work_));
  if (name.impossible) return std::optional<RuleId>();
  if (name.values) return MemberOfKeys(schema, *name.values, names, is_open);
  ASSIGN_OR_RETURN(TextSet all, KeysOf(schema, name, names));
  std::vector<KeyClass> classes;
  if (!all.empty()) classes.push_back({std::move(all), {}});
  HashSet<std::string> seen;
  for (const MergedSchema::ObjectPart& part : schema.objects) {
    if (part.patterns == nullptr) continue;
    for (const auto& [pattern, value] : part.patterns->members()) {
      if (!seen.insert(pattern).second) continue;
      ASSIGN_OR_RETURN(const SharedTextSet matching, PatternSet(value, pattern));
      std::vector<KeyClass> finer;
      for (KeyClass& one : classes) {
        absl::StatusOr<TextSet> in = one.keys.Intersect(*matching);
        absl::StatusOr<TextSet> out = one.keys.Minus(*matching);
        if (!in.ok()) return RegexError(value, in.status());
        if (!out.ok()) return RegexError(value, out.status());
        if (!out->empty()) finer.push_back({*std::move(out), one.patterns});
        if (in->empty()) continue;
        finer.push_back({*std::move(in), std::move(one.patterns)});
        finer.back().patterns.insert(pattern);
      }
      classes = std::move(finer);
      if (classes.size() > kMaxKeyClasses) {
        return document_.Error(value, "patternProperties: too many patterns that match one key");
      }
    }
  }
  std::vector<Fragment> members;
  for (const KeyClass& one : classes) {
    if (one.patterns.empty() && !is_open) continue;
    Conjunction conjunction;
    bool is_refused = false;
    for (const MergedSchema::ObjectPart& part : schema.objects) {
      bool is_known = false;
      if (part.patterns != nullptr) {
        for (const auto& [pattern, value] : part.patterns->members()) {
          if (!one.patterns.contains(pattern)) continue;
          is_known = true;
          AddPartTo({&value}, &conjunction);
          is_refused = is_refused || IsFalse(&value);
        }
      }
      for (const SchemaJson* patterns : part.other_patterns) {
        for (const auto& [pattern, value] : patterns->members()) {
          is_known = is_known || one.patterns.contains(pattern);
        }
      }
      if (is_known || part.additional == nullptr) continue;
      AddPartTo({part.additional}, &conjunction);
      is_refused = is_refused || IsFalse(part.additional);
    }
    if (is_refused) continue;
    const Fragment key = json_.Quoted(one.keys.Write(TextForm::kJsonString, &builder_));
    members.push_back(
        builder_.Call(MemberRule(key, builder_.Call(ValueRule(std::move(conjunction))))));
  }
  return AnotherMember(members);
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
  // Nothing keeps an additional key from being written twice, which counts once. Where what is
  // absent is null, others are written behind as many properties as it takes.
  const int64_t num_counted =
      absent_is_null_ ? std::count_if(properties.begin(), properties.end(),
                                      [](const Property& property) { return property.rule >= 0; })
                      : num_required;
  if (additional && min > num_counted + 1) {
    return document_.Error(
        *at.min_properties,
        absl::StrCat("minProperties is not supported above one more than what is ",
                     absent_is_null_ ? "listed" : "required",
                     ", where additional properties are allowed"));
  }
  // Drawn from the end. places[count] stands before the property that is being looked at, with
  // `count` members written, no more than there are before it; counts that make no difference are
  // one.
  const NodeId end = builder_.AddLink();
  const NodeId close = builder_.AddBytes('}', '}', end);
  const int64_t top = max < kNoLimit ? max : std::max<int64_t>(min, 1);
  auto after = [&](int64_t count) { return std::min(count + 1, top); };
  // Behind `place` properties, all of which are written where the absent ones are null.
  auto member = [&](size_t place, int64_t count, RuleId rule, NodeId next) {
    const NodeId call = builder_.AddCall(rule, next);
    if (count == 0 && (place == 0 || !absent_is_null_)) return call;
    return builder_.AddBytes(',', ',', json_.BehindSeparator(call));
  };
  std::vector<NodeId> places(top + 1);
  for (int64_t count = top; count >= 0; --count) {
    const NodeId place = builder_.AddLink();
    std::vector<NodeId> ways;
    places[count] = place;
    if (additional && count < max && count + 1 >= min) {
      ways.push_back(member(properties.size(), count, *additional, places[after(count)]));
    }
    if (count >= min) ways.push_back(close);
    builder_.Connect(place, builder_.AddFork(ways));
  }
  for (size_t i = properties.size(); i-- > 0;) {
    const auto& [rule, is_required, absent] = properties[i];
    const int64_t most = std::min(top, static_cast<int64_t>(i));
    std::vector<NodeId> before(most + 1);
    for (int64_t count = 0; count <= most; ++count) {
      std::vector<NodeId> ways;
      if (rule >= 0 && count < max) ways.push_back(member(i, count, rule, places[after(count)]));
      if (absent >= 0) {
        ways.push_back(member(i, count, absent, places[count]));
      } else if (!is_required) {
        ways.push_back(places[count]);
      }
      before[count] = builder_.AddFork(ways);
    }
    places = std::move(before);
    RETURN_IF_ERROR(builder_.status());
  }
  return Fragment{builder_.AddBytes('{', '{', places[0]), end};
}

}  // namespace lm
