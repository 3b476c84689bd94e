#include "engine/grammar/schema/schema_keywords.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/edit_distance.h"
#include "engine/base/hash_map.h"
#include "engine/grammar/grammar.h"
#include "engine/grammar/schema/merged_schema.h"
#include "engine/grammar/string_formats.h"

namespace lm {
namespace {

const HashMap<std::string, KeywordInfo>& Keywords() {
  constexpr uint8_t kNumbers = kInteger | kFraction;
  constexpr Subschemas kIt = Subschemas::kIt, kMembers = Subschemas::kMembers;
  static const auto& keywords = *new HashMap<std::string, KeywordInfo>({
      {"$ref", {Keyword::kRef}},
      {"allOf", {Keyword::kAllOf, 0, kIt}},
      {"anyOf", {Keyword::kAnyOf, 0, kIt}},
      {"oneOf", {Keyword::kOneOf, 0, kIt}},
      {"not", {Keyword::kNot, 0, kIt}},
      {"if", {Keyword::kIf, 0, kIt}},
      {"then", {Keyword::kThen, 0, kIt}},
      {"else", {Keyword::kThen, 0, kIt}},
      {"type", {Keyword::kType}},
      {"nullable", {Keyword::kNullable}},
      {"enum", {Keyword::kEnum}},
      {"const", {Keyword::kConst}},
      {"minimum", {Keyword::kMinimum, kNumbers}},
      {"maximum", {Keyword::kMaximum, kNumbers}},
      {"exclusiveMinimum", {Keyword::kExclusiveMinimum, kNumbers}},
      {"exclusiveMaximum", {Keyword::kExclusiveMaximum, kNumbers}},
      {"multipleOf", {Keyword::kMultipleOf, kNumbers}},
      {"minLength", {Keyword::kMinLength, kString}},
      {"maxLength", {Keyword::kMaxLength, kString}},
      {"pattern", {Keyword::kPattern, kString}},
      {"format", {Keyword::kFormat, kString}},
      {"items", {Keyword::kItems, kArray, kIt}},
      {"prefixItems", {Keyword::kPrefixItems, kArray, kIt}},
      {"additionalItems", {Keyword::kAdditionalItems, kArray, kIt}},
      {"minItems", {Keyword::kMinItems, kArray}},
      {"maxItems", {Keyword::kMaxItems, kArray}},
      {"uniqueItems", {Keyword::kUniqueItems, kArray}},
      {"contains", {Keyword::kContains, kArray, kIt}},
      {"minContains", {Keyword::kMinContains}},
      {"maxContains", {Keyword::kMinContains}},
      {"properties", {Keyword::kProperties, kObject, kMembers}},
      {"patternProperties", {Keyword::kPatternProperties, kObject, kMembers}},
      {"additionalProperties", {Keyword::kAdditionalProperties, kObject, kIt}},
      {"propertyNames", {Keyword::kPropertyNames, kObject, kIt}},
      {"required", {Keyword::kRequired, kObject}},
      {"dependencies", {Keyword::kDependencies, 0, kMembers}},
      {"dependentRequired", {Keyword::kDependencies}},
      {"dependentSchemas", {Keyword::kDependencies, 0, kMembers}},
      {"minProperties", {Keyword::kMinProperties, kObject}},
      {"maxProperties", {Keyword::kMaxProperties, kObject}},
      {"unevaluatedItems", {Keyword::kUnevaluatedItems, kArray, kIt}},
      {"unevaluatedProperties", {Keyword::kUnevaluatedProperties, kObject, kIt}},
      {"$dynamicRef", {Keyword::kRef}},
      {"$recursiveRef", {Keyword::kRef}},
      {"$defs", {Keyword::kAnnotation, 0, kMembers}},
      {"definitions", {Keyword::kAnnotation, 0, kMembers}},
      {"title", {Keyword::kAnnotation}},
      {"description", {Keyword::kAnnotation}},
      {"default", {Keyword::kAnnotation}},
      {"example", {Keyword::kAnnotation}},
      {"examples", {Keyword::kAnnotation}},
      {"deprecated", {Keyword::kAnnotation}},
      {"readOnly", {Keyword::kAnnotation}},
      {"writeOnly", {Keyword::kAnnotation}},
      {"$comment", {Keyword::kAnnotation}},
      {"$schema", {Keyword::kAnnotation}},
      {"$id", {Keyword::kAnnotation}},
      {"id", {Keyword::kAnnotation}},
      {"$anchor", {Keyword::kAnnotation}},
      {"$dynamicAnchor", {Keyword::kAnnotation}},
      {"$recursiveAnchor", {Keyword::kAnnotation}},
      {"$vocabulary", {Keyword::kAnnotation}},
      {"contentEncoding", {Keyword::kAnnotation}},
      {"contentMediaType", {Keyword::kAnnotation}},
      {"contentSchema", {Keyword::kAnnotation}},
      {"discriminator", {Keyword::kAnnotation}},
      {"externalDocs", {Keyword::kAnnotation}},
      {"xml", {Keyword::kAnnotation}},
  });
  return keywords;
}

// The members of all schemas that are in a text; none where that is not JSON.
void ForEachMember(absl::string_view schema,
                   const std::function<void(const std::string& name, const Json& value)>& visit) {
  const std::optional<Json> root = Json::Parse(schema);
  if (!root) return;
  ForEachSchema(*root, [&](const Json& place) {
    if (!place.is_object()) return;
    for (const auto& [name, value] : place.members()) visit(name, value);
  });
}

}  // namespace

const KeywordInfo* FindKeyword(absl::string_view name) {
  const auto known = Keywords().find(name);
  return known == Keywords().end() ? nullptr : &known->second;
}

bool IsSchemaKeyword(absl::string_view name) { return FindKeyword(name) != nullptr; }

std::string KeywordMeant(absl::string_view name) {
  constexpr size_t kLongest = 30;
  if (name.size() > kLongest) return "";
  std::string meant;
  size_t nearest = name.size() < 5 ? 2 : 3;  // nearer than this
  for (const auto& [keyword, info] : Keywords()) {
    const size_t shorter = std::min(keyword.size(), name.size());
    if (std::max(keyword.size(), name.size()) - shorter >= 3) continue;
    const size_t distance = absl::EqualsIgnoreCase(keyword, name) ? 0 : EditDistance(keyword, name);
    if (distance > 0 && keyword.size() < 4) continue;  // `note` is not meant to be `not`
    if (distance < nearest || (distance == nearest && !meant.empty() && keyword < meant)) {
      nearest = distance;
      meant = keyword;
    }
  }
  return meant;
}

bool IsMisspelt(absl::string_view name) {
  const std::string meant = KeywordMeant(name);
  return !meant.empty() && FindKeyword(meant)->keyword != Keyword::kAnnotation;
}

std::string UnknownKeyword(absl::string_view name) {
  const std::string meant = KeywordMeant(name);
  return absl::StrCat("\"", absl::CHexEscape(name.substr(0, 100)), "\"",
                      meant.empty() ? "" : absl::StrCat(" (", meant, " was meant?)"));
}

void ForEachSchema(const Json& root, const std::function<void(const Json& schema)>& visit) {
  std::vector<const Json*> open = {&root};
  while (!open.empty()) {
    const Json& schema = *open.back();
    open.pop_back();
    visit(schema);
    if (!schema.is_object()) continue;
    for (const auto& [name, value] : schema.members()) {
      const KeywordInfo* info = FindKeyword(name);
      if (info == nullptr || info->subschemas == Subschemas::kNone) continue;
      if (value.is_array()) {
        for (const Json& element : value.array()) open.push_back(&element);
      } else if (info->subschemas == Subschemas::kIt) {
        open.push_back(&value);
      } else if (value.is_object()) {
        for (const auto& [key, member] : value.members()) open.push_back(&member);
      }
    }
  }
}

std::vector<std::string> IgnoredKeywords(absl::string_view schema) {
  std::vector<std::string> ignored;
  HashSet<std::string> known;
  ForEachMember(schema, [&](const std::string& name, const Json&) {
    const bool is_unknown = FindKeyword(name) == nullptr && !absl::StartsWith(name, "x-");
    if (is_unknown && known.insert(name).second) ignored.push_back(UnknownKeyword(name));
  });
  return ignored;
}

std::vector<std::string> IgnoredFormats(absl::string_view schema) {
  std::vector<std::string> ignored;
  HashSet<std::string> known;
  ForEachMember(schema, [&](const std::string& name, const Json& value) {
    if (name != "format" || !value.is_string() || IsFormat(value.string())) return;
    const std::string shown = absl::CHexEscape(value.string().substr(0, 100));
    if (known.insert(shown).second) ignored.push_back(absl::StrCat("\"", shown, "\""));
  });
  return ignored;
}

}  // namespace lm
