// A JSON Schema as it was written: parsed within limits, with members in their order, and every
// place known by its JSON pointer.
//
//   ASSIGN_OR_RETURN(std::unique_ptr<SchemaDocument> document, SchemaDocument::Parse(text));
//   ASSIGN_OR_RETURN(const SchemaJson* target, document->Resolve(where, "#/$defs/node"));
//   return document->Error(*target, "...");          // "schema: ..., at #/$defs/node"
#ifndef LM_ENGINE_GRAMMAR_SCHEMA_DOCUMENT_H_
#define LM_ENGINE_GRAMMAR_SCHEMA_DOCUMENT_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/base/hash_map.h"
#include "engine/base/json.h"

namespace lm {

using SchemaJson = Json;

// Members of one object: a Json looks them up one by one.
inline constexpr size_t kMaxSchemaMembers = 2000;

// Immutable; thread-safe.
class SchemaDocument {
 public:
  // InvalidArgument: not JSON (with the position), a key twice in an object, or beyond
  // kMaxGrammarText, kMaxGrammarDepth or kMaxSchemaMembers.
  static absl::StatusOr<std::unique_ptr<SchemaDocument>> Parse(absl::string_view text);

  const SchemaJson& root() const { return root_; }

  // What a $ref at `where` refers to: "#", or "#/" and a pointer within this document.
  absl::StatusOr<const SchemaJson*> Resolve(const SchemaJson& where, absl::string_view ref) const;

  // "#/properties/a". REQUIRES: `value` is in this document.
  std::string PointerOf(const SchemaJson& value) const;
  absl::Status Error(const SchemaJson& where, absl::string_view what) const;

 private:
  struct Place {
    const SchemaJson* parent;
    std::string token;  // as in the pointer
  };

  SchemaDocument() = default;

  SchemaJson root_;
  HashMap<const SchemaJson*, Place> places_;  // all but the root
};

}  // namespace lm

#endif  // LM_ENGINE_GRAMMAR_SCHEMA_DOCUMENT_H_
