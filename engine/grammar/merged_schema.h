// What several schemas ask for at once: allOf, a $ref with neighbours, and a branch of anyOf with
// what stands around it all mean "valid against each of these".
//
// A Conjunction is a list of schema objects. Merge expands their $ref and allOf, checks every
// keyword, and sums up what they ask for; branches of anyOf and oneOf stay open.
#ifndef LM_ENGINE_GRAMMAR_MERGED_SCHEMA_H_
#define LM_ENGINE_GRAMMAR_MERGED_SCHEMA_H_

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/grammar/number_range.h"
#include "engine/grammar/schema_document.h"

namespace lm {

// A schema, perhaps with its anyOf or oneOf settled.
struct SchemaPart {
  const SchemaJson* schema;
  bool any_of_settled = false;
  bool one_of_settled = false;

  friend bool operator==(const SchemaPart&, const SchemaPart&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const SchemaPart& part) {
    return H::combine(std::move(h), part.schema, part.any_of_settled, part.one_of_settled);
  }
};

// Without duplicates; the order is that of properties in the output.
using Conjunction = std::vector<SchemaPart>;

// Kinds of values; "number" is kInteger | kFraction.
enum ValueKind : uint8_t {
  kNull = 1,
  kBoolean = 2,
  kInteger = 4,
  kFraction = 8,
  kString = 16,
  kArray = 32,
  kObject = 64,
  kAllKinds = 127,
};

// The one kind of a value; 1.0 is an integer.
uint8_t KindOf(const SchemaJson& value);

struct MergedSchema {
  struct ArrayPart {
    const SchemaJson* prefix = nullptr;  // an array of schemas, or null
    const SchemaJson* rest = nullptr;    // a schema, or null: anything
  };
  struct ObjectPart {
    const SchemaJson* properties = nullptr;  // an object of schemas, or null
    const SchemaJson* additional = nullptr;  // a schema, or null: see ObjectWriter
  };
  // An anyOf or oneOf that is open.
  struct Choice {
    size_t part;  // in `parts`
    bool is_one_of;
    const SchemaJson* branches;  // a non-empty array
  };

  // The keywords that say what is here, for messages; null where none does.
  struct Places {
    const SchemaJson* no_schema = nullptr;   // false
    const SchemaJson* type = nullptr;        // the last that took types away
    const SchemaJson* other_type = nullptr;  // one with which that leaves none
    const SchemaJson* values = nullptr;      // likewise of enum and const
    const SchemaJson* other_values = nullptr;
    const SchemaJson* lower = nullptr;
    const SchemaJson* upper = nullptr;
    const SchemaJson* multiple_of = nullptr;
    const SchemaJson* min_length = nullptr;
    const SchemaJson* max_length = nullptr;
    const SchemaJson* min_items = nullptr;
    const SchemaJson* max_items = nullptr;
    const SchemaJson* required = nullptr;
    const SchemaJson* min_properties = nullptr;
    const SchemaJson* max_properties = nullptr;
  };

  Conjunction parts;  // those given, expanded, without those that ask for nothing
  bool impossible = false;
  uint8_t kinds = kAllKinds;
  std::vector<Choice> choices;
  std::optional<std::vector<const SchemaJson*>> values;  // of enum and const

  NumberRange numbers;
  bool limits_numbers = false;

  int64_t min_length = 0;
  std::optional<int64_t> max_length;
  const SchemaJson* pattern = nullptr;
  const SchemaJson* format = nullptr;

  std::vector<ArrayPart> arrays;
  int64_t min_items = 0;
  std::optional<int64_t> max_items;

  std::vector<ObjectPart> objects;
  std::vector<std::string> required;
  int64_t min_properties = 0;
  std::optional<int64_t> max_properties;
  Places at;
};

// InvalidArgument with the JSON pointer for an unknown or unsupported keyword, a keyword with a
// value of the wrong type, a schema that refers to itself. *work counts the members looked at.
absl::StatusOr<MergedSchema> Merge(const SchemaDocument& document, const Conjunction& conjunction,
                                   int64_t* work);

}  // namespace lm

#endif  // LM_ENGINE_GRAMMAR_MERGED_SCHEMA_H_
