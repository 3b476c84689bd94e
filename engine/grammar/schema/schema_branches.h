// Tells the branches of a oneOf apart: a value may match only one of them, and an automaton that is
// their union would not see that it matches two.
#ifndef LM_ENGINE_GRAMMAR_SCHEMA_SCHEMA_BRANCHES_H_
#define LM_ENGINE_GRAMMAR_SCHEMA_SCHEMA_BRANCHES_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "engine/grammar/schema/merged_schema.h"
#include "engine/grammar/schema/schema_document.h"

namespace lm {

// What a member of this name must be valid against, as far as `properties` and their opposites say.
Conjunction AskedOfMember(const MergedSchema& schema, const std::string& name);

// The kinds of values that SchemaCompiler writes for it.
uint8_t WrittenKinds(const MergedSchema& schema);

// Whether it is certain that no value that SchemaCompiler writes for `a` is valid against `b`, word
// for word. It is where they are of different types, or have other values (const, enum); for
// objects also where `b` requires what is not written for `a` or `a` what `b` forbids, or where `a`
// requires a property for which `b` has a value of another type or other values. (An "a" or "b"
// that only a pattern or a range keeps apart is not looked into.) `grows`: what is written for `a`
// is asked for the opposites of other branches, too, which bring more (see OppositeBringsMore).
// REQUIRES: both are of MergeToTellApart. Errors: as Merge.
absl::StatusOr<bool> NeverFits(const SchemaDocument& document, const MergedSchema& a,
                               const MergedSchema& b, bool grows, SchemaWork* work);

// Whether the opposite of a branch may ask for more than that something does not hold: for kinds
// of values that were not implied before, or members that were not listed. The opposite of `not`
// does, and what has conditions.
bool OppositeBringsMore(const SchemaDocument& document, const SchemaJson& branch, SchemaWork* work);

}  // namespace lm

#endif  // LM_ENGINE_GRAMMAR_SCHEMA_SCHEMA_BRANCHES_H_
