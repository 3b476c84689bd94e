// A JSON Schema as it was written: parsed within limits, with members in their order, and every
// place known by its JSON pointer.
//
//   ASSIGN_OR_RETURN(std::unique_ptr<SchemaDocument> document, SchemaDocument::Parse(text));
//   ASSIGN_OR_RETURN(const SchemaJson* target, document->Resolve(where, "#/$defs/node"));
//   return document->Error(*target, "...");          // "schema: ..., at #/$defs/node"
#ifndef LM_ENGINE_GRAMMAR_SCHEMA_SCHEMA_DOCUMENT_H_
#define LM_ENGINE_GRAMMAR_SCHEMA_SCHEMA_DOCUMENT_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/base/hash_map.h"
#include "engine/base/json.h"
#include "engine/grammar/grammar.h"
#include "engine/grammar/schema/schema_values.h"

namespace lm {

using SchemaJson = Json;

// Members of one object: a Json looks them up one by one.
inline constexpr size_t kMaxSchemaMembers = 2000;

// Immutable; thread-safe.
class SchemaDocument {
 public:
  // InvalidArgument: not JSON (with the position), a key twice in an object, or beyond
  // kMaxGrammarText, kMaxGrammarDepth or kMaxSchemaMembers.
  static absl::StatusOr<std::unique_ptr<SchemaDocument>> Parse(absl::string_view text,
                                                               const SchemaOptions& options = {});

  const SchemaJson& root() const { return root_; }
  // How it is to be read.
  const SchemaOptions& options() const { return options_; }

  // Some schema asks for something of what is unevaluated.
  bool has_unevaluated() const { return has_unevaluated_; }

  // What stands beside a $ref does not count: drafts before 2019-09.
  bool RefStandsAlone(const SchemaJson& schema) const {
    return ref_stands_alone_ && schema.Has("$ref");
  }

  // The values of an `enum`, which is this one's argument; null for few, which are as well looked
  // through.
  const ValueSet* EnumOf(const SchemaJson& argument) const;

  // What a $ref at `where` refers to within this document: "#", "#/" and a pointer, an $anchor, or
  // these behind an $id that is here.
  absl::StatusOr<const SchemaJson*> Resolve(const SchemaJson& where, absl::string_view ref) const;
  // The same by a keyword: $ref, or $dynamicRef or $recursiveRef, which lead to the outermost of
  // the anchors of that name on the way to `where`: InvalidArgument where there are several, for
  // the way is not known here.
  absl::StatusOr<const SchemaJson*> ResolveBy(absl::string_view keyword, const SchemaJson& where,
                                              absl::string_view ref) const;

  // "#/properties/a". REQUIRES: `value` is in this document.
  std::string PointerOf(const SchemaJson& value) const;
  absl::Status Error(const SchemaJson& where, absl::string_view what) const;

 private:
  struct Place {
    const SchemaJson* parent;
    size_t number;  // among its elements or members
  };

  SchemaDocument() = default;

  SchemaJson root_;
  SchemaOptions options_;
  // Fills places_. False where an object has too many members, or two of one name.
  bool FindPlaces();
  // Fills bases_, targets_, enums_ and has_unevaluated_.
  void FindIds();
  // The schema, the nearest around `where`, that has an $id of its own; or the root.
  const SchemaJson* BaseOf(const SchemaJson& where) const;
  const SchemaJson* Follow(const SchemaJson& from, absl::string_view pointer) const;

  bool ref_stands_alone_ = false;
  bool has_unevaluated_ = false;
  HashMap<const SchemaJson*, Place> places_;         // all but the root
  HashMap<const SchemaJson*, std::string> bases_;    // schemas with an $id, as whole URIs
  HashMap<std::string, const SchemaJson*> targets_;  // by URI, with #anchor where it is one
  HashMap<const SchemaJson*, ValueSet> enums_;       // those of many values
};

}  // namespace lm

#endif  // LM_ENGINE_GRAMMAR_SCHEMA_SCHEMA_DOCUMENT_H_
