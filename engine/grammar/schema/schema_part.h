// What can be asked of one value: a schema or a piece of one, to be satisfied or not to be.
#ifndef LM_ENGINE_GRAMMAR_SCHEMA_SCHEMA_PART_H_
#define LM_ENGINE_GRAMMAR_SCHEMA_SCHEMA_PART_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "engine/grammar/schema/schema_document.h"

namespace lm {

struct SchemaPart {
  enum class Asks : uint8_t {
    kValid,    // the value is valid against the schema, or that keyword or member of it
    kPresent,  // the value is an object that has the member that is named there
    kNames,    // `schema` is an array of names, and the value an object that has them all, or no
               // object
    kListed,   // nothing; but for what others oppose, only members that a schema speaks of are
               // written
  };

  const SchemaJson* schema;
  bool negated = false;  // the opposite
  Asks asks = Asks::kValid;
  // Only this member of `schema`, a keyword, by its number; -1: all of it.
  int32_t keyword = -1;
  // Only this member of the keyword's value; -1: all.
  int32_t member = -1;
  // So many of its choices (see MergedSchema::Choice) are settled.
  int32_t settled = 0;
  // What it leads to ($ref, allOf, not) is beside it already, perhaps settled further.
  bool expanded = false;

  SchemaPart Negated() const {
    SchemaPart other = *this;
    other.negated = !negated;
    other.settled = 0;
    other.expanded = false;
    return other;
  }

  friend bool operator==(const SchemaPart&, const SchemaPart&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const SchemaPart& part) {
    return H::combine(std::move(h), part.schema, part.negated, part.asks, part.keyword, part.member,
                      part.settled, part.expanded);
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
  kNumbers = 12,
  kString = 16,
  kArray = 32,
  kObject = 64,
  kAllKinds = 127,
};

// The one kind of a value; 1.0 is an integer.
uint8_t KindOf(const SchemaJson& value);
// Of what `type` says; 0 if that is not valid.
uint8_t KindsOfType(const SchemaJson& type);

}  // namespace lm

#endif  // LM_ENGINE_GRAMMAR_SCHEMA_SCHEMA_PART_H_
