// The keywords of JSON Schema, drafts 4 to 2020-12, and OpenAPI's.
#ifndef LM_ENGINE_GRAMMAR_SCHEMA_SCHEMA_KEYWORDS_H_
#define LM_ENGINE_GRAMMAR_SCHEMA_SCHEMA_KEYWORDS_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/strings/string_view.h"
#include "engine/base/json.h"

namespace lm {

enum class Keyword : uint8_t {
  kAnnotation,
  kRef,
  kAllOf,
  kAnyOf,
  kOneOf,
  kNot,
  kIf,
  kThen,  // and else: part of `if`
  kType,
  kNullable,
  kEnum,
  kConst,
  kMinimum,
  kMaximum,
  kExclusiveMinimum,
  kExclusiveMaximum,
  kMultipleOf,
  kMinLength,
  kMaxLength,
  kPattern,
  kFormat,
  kItems,
  kPrefixItems,
  kAdditionalItems,
  kMinItems,
  kMaxItems,
  kUniqueItems,
  kContains,
  kUnevaluatedItems,
  kMinContains,  // and maxContains: part of `contains`
  kProperties,
  kPatternProperties,
  kAdditionalProperties,
  kUnevaluatedProperties,
  kPropertyNames,
  kRequired,
  kDependencies,  // and dependentRequired, dependentSchemas
  kMinProperties,
  kMaxProperties,
};

// Where there are schemas in a keyword's value.
enum class Subschemas : uint8_t {
  kNone,
  kIt,       // it is one, or an array of them
  kMembers,  // its members are, or arrays of names
};

struct KeywordInfo {
  Keyword keyword;
  uint8_t kinds = 0;  // of values that it speaks about; 0: any, or none
  Subschemas subschemas = Subschemas::kNone;
};

// Null for a name that is no keyword.
const KeywordInfo* FindKeyword(absl::string_view name);

// The keyword that was meant where `name` is one in other letters, or one or two letters off (one
// of a short name); empty where none was.
std::string KeywordMeant(absl::string_view name);
// ... and asks for something of values, so that a text that was written without it would be wrong.
bool IsMisspelt(absl::string_view name);

// What "nobody knows this keyword" says: `"frobnicate"`, `"additonalProperties"
// (additionalProperties was meant?)`.
std::string UnknownKeyword(absl::string_view name);

// Calls `visit` for each schema that is in `root`, itself too, wherever keywords say that there is
// one. Nothing recurses.
void ForEachSchema(const Json& root, const std::function<void(const Json& schema)>& visit);

}  // namespace lm

#endif  // LM_ENGINE_GRAMMAR_SCHEMA_SCHEMA_KEYWORDS_H_
