#include "engine/runtime/extraction_schema.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "engine/base/hash_map.h"
#include "engine/base/status_macros.h"
#include "engine/grammar/schema/schema_document.h"

namespace lm {
namespace {

// Keywords whose schemas speak of the same value as the schema that they stand in.
constexpr absl::string_view kListsOfTheSame[] = {"allOf", "anyOf", "oneOf"};
constexpr absl::string_view kOfTheSame[] = {"then", "else"};
// Those of other values, which are elsewhere in an answer.
constexpr absl::string_view kOfOthers[] = {"items", "additionalItems", "additionalProperties",
                                           "unevaluatedItems", "unevaluatedProperties"};
constexpr absl::string_view kListsOfOthers[] = {"items", "prefixItems"};
constexpr absl::string_view kNamedOthers[] = {"$defs", "definitions", "patternProperties"};

template <size_t N>
bool IsAmong(absl::string_view name, const absl::string_view (&names)[N]) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

Json OrNull(Json schema) {
  Json null = Json::MakeObject();
  null.Add("type", "null");
  Json either = Json::MakeObject();
  either.Add("anyOf", Json::MakeArray().Append(std::move(schema)).Append(std::move(null)));
  return either;
}

class ExtractionWriter {
 public:
  ExtractionWriter(const SchemaDocument& document, bool closes)
      : document_(document), closes_(closes) {}

  Json Write() {
    Of(document_.root(), nullptr);  // finds what is open, and what moves
    return Of(document_.root(), nullptr);
  }

 private:
  // `around`: the properties of a schema that speaks of the same value, or null.
  Json Of(const Json& schema, const Json* around) {
    if (!schema.is_object()) return schema;
    // References within it are from there, where nothing may move.
    if (&schema != &document_.root() && schema.Has("$id")) return schema;
    if (SaysMoreThanOnce(schema)) Open(schema);
    const Json* properties = ObjectAt(schema, "properties");
    const Json* of_the_same = properties != nullptr ? properties : around;
    Json changed = Json::MakeObject();
    for (const auto& [name, value] : schema.members()) {
      const bool counts = name == "minProperties" || name == "maxProperties";
      if (name == "properties" || name == "required" || (counts && properties != nullptr)) continue;
      if (name == "$ref") {
        changed.Add(name, Moved(schema, value));
      } else if (IsAmong(name, kListsOfTheSame)) {
        changed.Add(name, Each(value, of_the_same));
      } else if (IsAmong(name, kOfTheSame)) {
        changed.Add(name, Of(value, of_the_same));
      } else if (IsAmong(name, kNamedOthers) ||
                 (IsAmong(name, kListsOfOthers) && value.is_array())) {
        changed.Add(name, Each(value, nullptr));
      } else {
        changed.Add(name, IsAmong(name, kOfOthers) ? Of(value, nullptr) : value);
      }
    }
    AddProperties(schema, properties, around, &changed);
    return changed;
  }

  Json Each(const Json& schemas, const Json* around) {
    Json changed = schemas.is_array() ? Json::MakeArray() : Json::MakeObject();
    if (schemas.is_array()) {
      for (const Json& one : schemas.array()) changed.Append(Of(one, around));
    } else if (schemas.is_object()) {
      for (const auto& [name, one] : schemas.members()) changed.Add(name, Of(one, around));
    }
    return changed;
  }

  void AddProperties(const Json& schema, const Json* properties, const Json* around,
                     Json* changed) {
    const std::vector<std::string> needed = RequiredBy(schema);
    const HashSet<std::string> is_needed(needed.begin(), needed.end());
    Json listed = Json::MakeObject(), required = Json::MakeArray();
    if (properties != nullptr) {
      for (const auto& [name, property] : properties->members()) {
        const bool may_be_null = !is_needed.contains(name);
        if (may_be_null) moved_.insert(document_.PointerOf(property));
        Json now = Of(property, nullptr);
        listed.Add(name, may_be_null ? OrNull(std::move(now)) : std::move(now));
        required.Append(name);
      }
    }
    for (const std::string& name : needed) {
      if (properties != nullptr && properties->Has(name)) continue;
      required.Append(name);
      // Around it that may be null.
      const Json* property = around != nullptr ? around->Find(name) : nullptr;
      if (property != nullptr) {
        listed.Add(name, Json::MakeObject().Add("$ref", Now(document_.PointerOf(*property))));
      }
    }
    const bool lists = properties != nullptr;
    if (lists || listed.size() > 0) changed->Add("properties", std::move(listed));
    if (lists || required.size() > 0) changed->Add("required", std::move(required));
    const bool is_open = !closes_ || open_.contains(&schema) ||
                         schema.Has("additionalProperties") || schema.Has("unevaluatedProperties");
    if (lists && !is_open) changed->Add("additionalProperties", false);
  }

  static const Json* ObjectAt(const Json& schema, absl::string_view name) {
    const Json* value = schema.Find(name);
    return value != nullptr && value->is_object() ? value : nullptr;
  }

  static std::vector<std::string> RequiredBy(const Json& schema) {
    std::vector<std::string> names;
    const Json* required = schema.Find("required");
    if (required == nullptr || !required->is_array()) return names;
    for (const Json& name : required->array()) {
      if (name.is_string()) names.push_back(name.string());
    }
    return names;
  }

  // What is said of one value in several places: closed for itself, one would rule out the members
  // of another.
  static bool SaysMoreThanOnce(const Json& schema) {
    const Json* all = schema.Find("allOf");
    size_t places = all != nullptr ? all->size() : 0;
    places += schema.Has("$ref");
    for (const char* name : {"anyOf", "oneOf"}) {
      const Json* branches = schema.Find(name);
      if (branches == nullptr || !branches->is_array()) continue;
      const auto& list = branches->array();
      places += std::any_of(list.begin(), list.end(), &SaysOfMembers);
    }
    places += std::any_of(std::begin(kOfTheSame), std::end(kOfTheSame), [&](auto name) {
      const Json* branch = schema.Find(name);
      return branch != nullptr && SaysOfMembers(*branch);
    });
    return places + (schema.Has("properties") || schema.Has("patternProperties")) > 1;
  }

  // More than which of them are required.
  static bool SaysOfMembers(const Json& schema) {
    if (!schema.is_object()) return false;
    return std::any_of(schema.members().begin(), schema.members().end(), [](const auto& member) {
      const absl::string_view name = member.first;
      return name == "properties" || name == "patternProperties" || name == "$ref" ||
             IsAmong(name, kListsOfTheSame) || IsAmong(name, kOfTheSame);
    });
  }

  void Open(const Json& schema) {
    std::vector<const Json*> found = {&schema};
    while (!found.empty()) {
      const Json& one = *found.back();
      found.pop_back();
      if (!one.is_object() || !open_.insert(&one).second) continue;
      if (const Json* target = Target(one)) found.push_back(target);
      for (absl::string_view name : kOfTheSame) {
        if (const Json* value = one.Find(name)) found.push_back(value);
      }
      for (absl::string_view name : kListsOfTheSame) {
        const Json* list = one.Find(name);
        if (list == nullptr || !list->is_array()) continue;
        for (const Json& branch : list->array()) found.push_back(&branch);
      }
    }
  }

  const Json* Target(const Json& schema) const {
    const Json* ref = schema.Find("$ref");
    if (ref == nullptr || !ref->is_string()) return nullptr;
    return document_.Resolve(schema, ref->string()).value_or(nullptr);
  }

  // What a $ref refers to may be a property, or within one.
  Json Moved(const Json& schema, const Json& ref) const {
    const Json* target = Target(schema);
    if (target == nullptr) return ref;
    const std::string pointer = document_.PointerOf(*target);
    std::string now = Now(pointer);
    return now == pointer ? ref : Json(std::move(now));
  }

  // The pointer to what is at `pointer` in the document.
  std::string Now(absl::string_view pointer) const {
    std::string now;
    for (size_t at = 0; at < pointer.size();) {
      const size_t end = std::min(pointer.find('/', at + 1), pointer.size());
      absl::StrAppend(&now, pointer.substr(at, end - at),
                      moved_.contains(pointer.substr(0, end)) ? "/anyOf/0" : "");
      at = end;
    }
    return now;
  }

  const SchemaDocument& document_;
  const bool closes_;
  HashSet<const Json*> open_;
  HashSet<std::string> moved_;  // pointers to what may be null now
};

}  // namespace

absl::StatusOr<Json> ExtractionSchema(const AnswerConstraint& constraint) {
  ASSIGN_OR_RETURN(const std::unique_ptr<SchemaDocument> document,
                   SchemaDocument::Parse(constraint.text));
  return ExtractionWriter(*document, /*closes=*/!constraint.additional).Write();
}

}  // namespace lm
