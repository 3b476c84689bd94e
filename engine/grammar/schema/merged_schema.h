// What several schemas ask for at once: allOf, a $ref with neighbours, `not`, and a branch of anyOf
// with what stands around it all mean "valid (or not) against each of these".
//
// A Conjunction is a list of such parts. Merge expands what leads to others, checks every keyword,
// and sums up what they ask for. What is one thing or another stays open, as a Choice.
#ifndef LM_ENGINE_GRAMMAR_SCHEMA_MERGED_SCHEMA_H_
#define LM_ENGINE_GRAMMAR_SCHEMA_MERGED_SCHEMA_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/hash_map.h"
#include "engine/grammar/number_range.h"
#include "engine/grammar/schema/schema_document.h"
#include "engine/grammar/schema/schema_part.h"
#include "engine/grammar/schema/schema_work.h"

namespace lm {

struct MergedSchema {
  struct ArrayPart {
    const SchemaJson* prefix = nullptr;  // an array of schemas, or null
    std::optional<SchemaPart> rest;      // none: anything
    size_t before_rest = 0;              // items that others speak about, and `rest` does not
  };
  struct ObjectPart {
    const SchemaJson* properties = nullptr;  // an object of schemas, or null
    const SchemaJson* patterns = nullptr;    // an object of schemas by pattern, or null
    const SchemaJson* additional = nullptr;  // a schema, or null: see SchemaCompiler::Object
    // Of other parts: what is listed there is not `additional`.
    std::vector<const SchemaJson*> other_properties;
    std::vector<const SchemaJson*> other_patterns;

    bool HasPatterns() const { return patterns != nullptr || !other_patterns.empty(); }
    // Among its properties or the others.
    bool Lists(const std::string& name) const;
  };
  // Items that are valid against `part`, from `min` to `max` of them.
  struct Contains {
    SchemaPart part;
    int64_t min = 1;
    std::optional<int64_t> max;
    const SchemaJson* at = nullptr;
  };
  // One of several conjunctions is asked for besides. Settled in the order in which a part has
  // them.
  struct Choice {
    size_t part;  // in `parts`
    std::vector<Conjunction> alternatives;
    // A oneOf, where the alternatives are its branches: exactly one of them.
    const SchemaJson* one_of = nullptr;
  };
  // What cannot be enforced, where one of these kinds is possible.
  struct Refusal {
    uint8_t kinds;
    absl::Status status;
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
    const SchemaJson* unique_items = nullptr;
    const SchemaJson* required = nullptr;
    const SchemaJson* min_properties = nullptr;
    const SchemaJson* max_properties = nullptr;
  };

  // It shows at once that nothing is valid.
  bool IsNothing() const { return impossible || kinds == 0 || (values && values->empty()); }

  Conjunction parts;  // those given, expanded, without those that ask for nothing
  bool impossible = false;
  uint8_t kinds = kAllKinds;
  // Where there is no type, and values are not read word for word, the kinds of which the keywords
  // speak: only these are written. `kinds` has no others, but for MergeToTellApart.
  uint8_t implied_kinds = kAllKinds;
  std::vector<Choice> choices;
  // Of enum and const: those that are valid against everything.
  std::optional<std::vector<const SchemaJson*>> values;
  std::vector<const SchemaJson*> excluded;  // values that it is not
  std::vector<Refusal> refusals;

  NumberRange numbers;
  bool limits_numbers = false;

  int64_t min_length = 0;
  std::optional<int64_t> max_length;
  std::vector<const SchemaJson*> patterns;
  std::vector<const SchemaJson*> not_patterns;
  std::vector<const SchemaJson*> formats;

  std::vector<ArrayPart> arrays;
  int64_t min_items = 0;
  std::optional<int64_t> max_items;
  bool unique_items = false;
  std::vector<Contains> contains;

  std::vector<ObjectPart> objects;
  // What unevaluatedProperties ask for. But for MergeToTellApart, it stands in `objects`, too, once
  // all choices are settled.
  std::vector<const SchemaJson*> unevaluated_properties;
  std::vector<std::string> required;
  std::vector<std::string> forbidden;
  // Of those required the ones that only the opposite of `properties` asks for.
  HashSet<std::string> opposed;
  bool only_listed = false;  // see SchemaPart::Asks::kListed
  // What members of that name must be valid against besides.
  std::vector<std::pair<std::string, SchemaPart>> members;
  std::vector<const SchemaJson*> names;  // of propertyNames
  int64_t min_properties = 0;
  std::optional<int64_t> max_properties;
  Places at;
};

// InvalidArgument with the JSON pointer for a keyword that is not supported, or has a value of the
// wrong type, and for a schema that refers to itself. *work counts the members looked at; values of
// enum and branches of a oneOf that lead beyond kMaxSchemaWork are InvalidArgument too.
absl::StatusOr<MergedSchema> Merge(const SchemaDocument& document, const Conjunction& conjunction,
                                   SchemaWork* work);
// The same for a branch that is to be told apart from others, as JSON Schema has it: without what
// unevaluatedProperties and unevaluatedItems ask for, which is another thing in each branch, with
// the values that fit several branches of a oneOf that is settled, and with kinds that are not
// written.
absl::StatusOr<MergedSchema> MergeToTellApart(const SchemaDocument& document,
                                              const Conjunction& conjunction, SchemaWork* work);

}  // namespace lm

#endif  // LM_ENGINE_GRAMMAR_SCHEMA_MERGED_SCHEMA_H_
