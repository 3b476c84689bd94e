#include "engine/grammar/schema/schema_compiler.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/checkpoint.h"
#include "engine/base/printable.h"
#include "engine/base/status_macros.h"
#include "engine/base/utf8.h"
#include "engine/grammar/grammar.h"
#include "engine/grammar/schema/schema_branches.h"
#include "engine/grammar/schema/schema_keywords.h"

namespace lm {
namespace {

constexpr size_t kMostShown = 100;  // bytes of a name in a message

// The $ref, or its like, of a schema that has nothing else but annotations; or null.
const Json::Member* OnlyReference(const SchemaJson& schema) {
  if (!schema.is_object()) return nullptr;
  const Json::Member* only = nullptr;
  for (const Json::Member& member : schema.members()) {
    const KeywordInfo* info = FindKeyword(member.first);
    if (info != nullptr && info->keyword == Keyword::kAnnotation) continue;
    if (info == nullptr || info->keyword != Keyword::kRef || only != nullptr) return nullptr;
    only = &member;
  }
  return only;
}

absl::StatusOr<std::shared_ptr<const Grammar>> Compile(absl::string_view schema,
                                                       bool absent_is_null,
                                                       const SchemaOptions& options) {
  ASSIGN_OR_RETURN(const std::unique_ptr<SchemaDocument> document,
                   SchemaDocument::Parse(schema, options));
  ASSIGN_OR_RETURN(Automaton automaton, SchemaCompiler(document.get(), absent_is_null).Compile());
  return std::make_shared<const Grammar>(std::move(automaton));
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Grammar>> CompileJsonSchema(absl::string_view schema,
                                                                 const SchemaOptions& options) {
  return Compile(schema, /*absent_is_null=*/false, options);
}

absl::StatusOr<std::shared_ptr<const Grammar>> CompileExtractionSchema(
    absl::string_view schema, const SchemaOptions& options) {
  return Compile(schema, /*absent_is_null=*/true, options);
}

// A schema of nothing but unknown keywords: an object of properties, most likely.
absl::Status SchemaCompiler::CheckRoot() const {
  const SchemaJson& root = document_.root();
  if (!root.is_object() || root.size() == 0 || document_.options().additional) {
    return absl::OkStatus();
  }
  for (const auto& [name, value] : root.members()) {
    if (IsSchemaKeyword(name) || absl::StartsWith(name, "x-")) return absl::OkStatus();
  }
  const auto& [name, value] = root.members().front();
  // A name that is long, or has characters that nobody sees, is told by its place only.
  const bool shown = name.size() <= kMostShown && Printable(name) == name;
  return document_.Error(
      value, absl::StrCat("keyword ", UnknownKeyword(name),
                          " is not known, nor any beside it: of fields write {\"properties\":{",
                          shown ? JsonString(name) : "\"...\"", ":{\"type\":\"string\"}}}"));
}

absl::StatusOr<Automaton> SchemaCompiler::Compile() {
  RETURN_IF_ERROR(CheckRoot());
  // Open objects hold any value.
  if (document_.options().additional) json_.AddAll();
  const RuleId root = RuleOf({{&document_.root()}});
  while (!queue_.empty()) {
    const auto [rule, conjunction] = std::move(queue_.front());
    queue_.pop_front();
    ASSIGN_OR_RETURN(const Fragment body, BodyOf(conjunction));
    RETURN_IF_ERROR(builder_.status());
    builder_.Define(rule, body);
    if (work_.IsTooMuch()) {
      return document_.Error(*conjunction.back().schema,
                             absl::StrCat("too large: too many combinations of allOf, anyOf, oneOf "
                                          "and if: more than ",
                                          kMaxSchemaWork, " members of schemas to look at"));
    }
  }
  RETURN_IF_ERROR(CheckOverlaps());
  absl::StatusOr<Automaton> automaton = std::move(builder_).Build(
      root, [this](RuleId rule) { return document_.PointerOf(*places_.at(rule)); });
  if (automaton.ok() || absl::IsCancelled(automaton.status())) return automaton;
  return absl::InvalidArgumentError(absl::StrCat("schema: ", automaton.status().message()));
}

SchemaPart SchemaCompiler::ReferredTo(SchemaPart part) const {
  HashSet<const SchemaJson*> seen;  // what refers to itself is left to Merge, like other errors
  while (part.asks == SchemaPart::Asks::kValid && part.keyword < 0 && !part.expanded &&
         seen.insert(part.schema).second) {
    const Json::Member* ref = OnlyReference(*part.schema);
    if (ref == nullptr || !ref->second.is_string()) break;
    const auto target = document_.ResolveBy(ref->first, ref->second, ref->second.string());
    if (!target.ok()) break;
    part.schema = *target;
  }
  return part;
}

RuleId SchemaCompiler::RuleOf(Conjunction conjunction) {
  // What is evaluated depends on which schema refers.
  if (!document_.has_unevaluated()) {
    const Conjunction given = std::exchange(conjunction, {});
    for (const SchemaPart& part : given) AddPartTo(ReferredTo(part), &conjunction);
  }
  auto [at, is_new] = rules_.try_emplace(conjunction, -1);
  if (is_new) {
    at->second = builder_.AddRule("");
    places_[at->second] = conjunction.back().schema;
    queue_.emplace_back(at->second, std::move(conjunction));
  }
  return at->second;
}

absl::StatusOr<Fragment> SchemaCompiler::BodyOf(const Conjunction& conjunction) {
  ASSIGN_OR_RETURN(MergedSchema schema, Merge(document_, conjunction, &work_));
  const MergedSchema::Places& at = schema.at;
  if (schema.impossible) return builder_.Nothing(Together({at.no_schema}));
  if (schema.values && schema.values->empty()) {
    return builder_.Nothing(
        Together({at.values, at.other_values != nullptr ? at.other_values : at.type}));
  }
  if (schema.kinds == 0) return builder_.Nothing(Together({at.other_type, at.type}));
  if (schema.values) return Values(*schema.values);
  if (!schema.choices.empty()) return BranchesOf(schema);
  if (schema.parts.empty()) return json_.AnyValue();
  for (const SchemaJson* value : schema.excluded) {
    if (!value->is_structured() || (KindOf(*value) & schema.kinds) == 0) continue;
    if (value->size() > 0) {
      return document_.Error(*value, "the opposite of an array or object is not supported");
    }
    int64_t& least = value->is_array() ? schema.min_items : schema.min_properties;
    least = std::max<int64_t>(least, 1);
  }
  std::vector<Fragment> kinds;
  auto add = [&kinds](absl::StatusOr<Fragment> kind) {
    if (kind.ok()) kinds.push_back(*kind);
    return kind.status();
  };
  if (schema.kinds & kObject) RETURN_IF_ERROR(add(Object(schema)));
  if (schema.kinds & kArray) RETURN_IF_ERROR(add(Array(schema)));
  if (schema.kinds & kString) RETURN_IF_ERROR(add(String(schema)));
  if (schema.kinds & kNumbers) RETURN_IF_ERROR(add(Number(schema)));
  auto is_excluded = [&schema](const SchemaJson& value) {
    return std::any_of(schema.excluded.begin(), schema.excluded.end(),
                       [&value](const SchemaJson* other) { return *other == value; });
  };
  if (schema.kinds & kBoolean) {
    for (const bool value : {true, false}) {
      if (!is_excluded(value)) kinds.push_back(builder_.Literal(value ? "true" : "false"));
    }
  }
  if ((schema.kinds & kNull) && !is_excluded(nullptr)) kinds.push_back(json_.Null());
  if (kinds.empty()) return builder_.Nothing(Together({at.type}));
  return builder_.Alternate(kinds);
}

Fragment SchemaCompiler::Values(const std::vector<const SchemaJson*>& all) {
  std::vector<Fragment> values;
  std::vector<std::string> scalars;
  for (const SchemaJson* value : all) {
    if (value->is_structured()) {
      values.push_back(json_.Value(*value));
    } else {
      scalars.push_back(JsonText::Scalar(*value));
    }
  }
  if (!scalars.empty()) values.push_back(builder_.AnyLiteral(std::move(scalars)));
  return builder_.Alternate(values);
}

void SchemaCompiler::AddPartTo(const SchemaPart& part, Conjunction* conjunction) {
  if (std::find(conjunction->begin(), conjunction->end(), part) == conjunction->end()) {
    conjunction->push_back(part);
  }
}

std::vector<std::string> SchemaCompiler::Shown(const std::vector<const SchemaJson*>& places) const {
  constexpr size_t kShownBytes = 60;
  std::vector<std::string> shown;
  for (const SchemaJson* place : places) {
    if (place == nullptr) continue;
    std::string value = place->Dump();
    if (value.size() > kShownBytes) {
      value.resize(ValidUtf8Prefix(absl::string_view(value).substr(0, kShownBytes)));
      value += "...";
    }
    shown.push_back(absl::StrCat(document_.PointerOf(*place), " (", value, ")"));
  }
  return shown;
}

std::string SchemaCompiler::Together(const std::vector<const SchemaJson*>& places) const {
  std::vector<std::string> shown = Shown(places);
  if (shown.size() < 2) return absl::StrCat(absl::StrJoin(shown, ""), " leaves nothing");
  const std::string last = std::move(shown.back());
  shown.pop_back();
  return absl::StrCat(absl::StrJoin(shown, ", "), " and ", last, " cannot hold together");
}

bool SchemaCompiler::IsNothing(const MergedSchema& schema) {
  if (schema.IsNothing()) return true;
  if (schema.values || schema.kinds != kObject) return false;
  for (const std::string& name : schema.forbidden) {
    const auto& required = schema.required;
    if (std::find(required.begin(), required.end(), name) != required.end()) return true;
  }
  for (const std::string& name : schema.required) {
    const Conjunction member = AskedOfMember(schema, name);
    if (member.size() < 2) continue;
    // What is not supported is an error once a rule is made of it.
    const absl::StatusOr<MergedSchema> merged = Merge(document_, member, &work_);
    if (merged.ok() && merged->IsNothing()) return true;
  }
  return false;
}

absl::StatusOr<Fragment> SchemaCompiler::BranchesOf(const MergedSchema& schema) {
  const MergedSchema::Choice& choice = schema.choices.front();
  // What stands around the choice, which is settled now.
  Conjunction around = schema.parts;
  SchemaPart& owner = around[choice.part];
  ++owner.settled;
  // A part of nothing but the choice asks for no more.
  bool is_bare = false;
  if (owner.negated) {
    // One of the keywords does not hold: each alternative says so whole.
    const SchemaPart& first = choice.alternatives.front().front();
    is_bare = owner.keyword < 0 && first.schema == owner.schema && first.keyword >= 0 &&
              first.member < 0 && first.asks == SchemaPart::Asks::kValid;
  } else if (owner.asks == SchemaPart::Asks::kValid) {
    is_bare = std::all_of(owner.schema->members().begin(), owner.schema->members().end(),
                          [](const Json::Member& member) {
                            const KeywordInfo* info = FindKeyword(member.first);
                            if (info == nullptr) return true;
                            return info->keyword == Keyword::kAnnotation ||
                                   info->keyword == Keyword::kAnyOf ||
                                   info->keyword == Keyword::kOneOf;
                          }) &&
              !(owner.schema->Has("anyOf") && owner.schema->Has("oneOf"));
  }
  if (is_bare && !document_.has_unevaluated())
    around.erase(around.begin() + static_cast<ptrdiff_t>(choice.part));
  std::vector<Conjunction> branches;
  for (const Conjunction& alternative : choice.alternatives) {
    RETURN_IF_ERROR(Checkpoint());
    Conjunction conjunction;
    for (const SchemaPart& part : around) AddPartTo(part, &conjunction);
    for (const SchemaPart& part : alternative) AddPartTo(part, &conjunction);
    work_.members += static_cast<int64_t>(conjunction.size());
    branches.push_back(std::move(conjunction));
  }
  if (choice.one_of != nullptr) RETURN_IF_ERROR(KeepApart(choice, &branches));
  // Those that nothing can be valid against need no rule, unless to say why.
  std::vector<Fragment> rules;
  for (const Conjunction& branch : branches) {
    if (work_.IsTooMuch()) break;
    ASSIGN_OR_RETURN(const MergedSchema merged, Merge(document_, branch, &work_));
    if (!IsNothing(merged)) rules.push_back(builder_.Call(RuleOf(branch)));
  }
  if (rules.empty()) {
    for (const Conjunction& branch : branches) {
      rules.push_back(builder_.Call(RuleOf(branch)));
      if (work_.IsTooMuch()) break;
    }
  }
  return builder_.Alternate(rules);
}

}  // namespace lm
