#include "extension/questions/extraction.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "engine/base/json.h"
#include "engine/base/printable.h"
#include "engine/base/status_macros.h"
#include "engine/grammar/grammar.h"
#include "engine/grammar/string_formats.h"

namespace lm {
namespace {

constexpr size_t kMostShown = 200;  // bytes of a schema in a message

// "a, b and c".
std::string Listed(const std::vector<std::string>& names) {
  if (names.size() < 2) return absl::StrJoin(names, "");
  return absl::StrCat(absl::StrJoin(absl::MakeSpan(names).first(names.size() - 1), ", "), " and ",
                      names.back());
}

// Of a schema's top, which may have none.
struct Fields {
  std::vector<std::string> names;
  std::string descriptions;  // a line for each field that has one: "\n- a: what a means"
};

Fields FieldsOf(const std::string& schema) {
  Fields fields;
  const std::optional<Json> document = Json::Parse(schema);
  const Json* properties = document ? document->Find("properties") : nullptr;
  if (properties == nullptr || !properties->is_object()) return fields;
  for (const auto& [name, property] : properties->members()) {
    fields.names.push_back(name);
    const Json* description = property.Find("description");
    if (description == nullptr || !description->is_string()) continue;
    absl::StrAppend(&fields.descriptions, "\n- ", name, ": ", description->string());
  }
  return fields;
}

absl::Status Ambiguous(const std::string& name) {
  return absl::InvalidArgumentError(absl::StrCat(
      "schema: is \"", name, "\" a field, or a keyword of a JSON Schema? For a field, write {",
      R"("properties":{)", JsonString(name), R"(:{"type":"string","description":"..."}}})"));
}

// A description that is just the name of a JSON type is meant as one, most likely, or tells
// nothing.
absl::Status CheckDescription(const std::string& name, const std::string& description) {
  constexpr absl::string_view kTypes[] = {"string", "number", "integer", "boolean",
                                          "array",  "object", "null"};
  if (std::find(std::begin(kTypes), std::end(kTypes), description) == std::end(kTypes)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("schema: is \"", description, "\" the type of \"", Printable(name),
                   "\", or what it means? For the type, write {\"properties\":{", JsonString(name),
                   ":{\"type\":\"", description, "\"}}}; for what it means, a few words"));
}

}  // namespace

absl::StatusOr<std::string> ExtractionSchema(const std::string& text) {
  const std::optional<Json> given = Json::Parse(text);
  if (!given || !given->is_structured()) return text;
  Json properties = Json::MakeObject();
  auto add = [&properties](const std::string& name, const std::string& description) {
    if (properties.Has(name)) {
      return absl::InvalidArgumentError(
          absl::StrCat("schema: the field \"", Printable(name), "\" is there twice"));
    }
    Json property = Json::MakeObject();
    property.Add("type", "string");
    if (!description.empty()) property.Add("description", description);
    properties.Add(name, std::move(property));
    return absl::OkStatus();
  };
  if (given->is_array()) {
    if (given->size() == 0) {
      return absl::InvalidArgumentError("schema: the array names no field");
    }
    for (const Json& name : given->array()) {
      if (!name.is_string()) {
        return absl::InvalidArgumentError(
            absl::StrCat("schema: an array must be of fields' names, strings, got ", name.Dump(),
                         R"( in it (a list is asked for by {"type":"array","items":...}))"));
      }
      RETURN_IF_ERROR(add(name.string(), ""));
    }
  } else {
    const Json::Object& members = given->members();
    const bool of_texts = std::all_of(members.begin(), members.end(),
                                      [](const Json::Member& m) { return m.second.is_string(); });
    const bool keyless =
        !members.empty() && std::none_of(members.begin(), members.end(), [](const Json::Member& m) {
          return IsSchemaKeyword(m.first);
        });
    const bool of_objects = std::any_of(members.begin(), members.end(),
                                        [](const Json::Member& m) { return m.second.is_object(); });
    if (keyless && of_objects) {
      return absl::InvalidArgumentError(
          absl::StrCat("schema has no keyword of JSON Schema: of fields write {\"properties\":",
                       Printable(absl::string_view(text).substr(0, kMostShown)),
                       text.size() > kMostShown ? "...}" : "}"));
    }
    if (members.empty() || !of_texts) return text;
    const bool is_schema = std::all_of(members.begin(), members.end(), [](const Json::Member& m) {
      return IsSchemaKeyword(m.first);
    });
    // These ask for something, and a format that is one; all others with texts as their values only
    // comment, or may be fields: a pattern, too.
    constexpr absl::string_view kAsking[] = {"type", "$ref", "const"};
    const bool asks = std::any_of(std::begin(kAsking), std::end(kAsking),
                                  [&given](absl::string_view name) { return given->Has(name); }) ||
                      IsFormat(given->TextAt("format"));
    if (is_schema && !asks) return Ambiguous(members.front().first);
    if (is_schema) return text;
    for (const auto& [name, description] : members) {
      RETURN_IF_ERROR(CheckDescription(name, description.string()));
      RETURN_IF_ERROR(add(name, description.string()));
    }
  }
  Json schema = Json::MakeObject();
  schema.Add("type", "object");
  schema.Add("properties", std::move(properties));
  return schema.Dump();
}

std::string ExtractionPrompt(const std::string& schema) {
  const Fields fields = FieldsOf(schema);
  if (fields.names.empty()) {
    return absl::StrCat("Extract what the text says as JSON of this schema: ", schema);
  }
  return absl::StrCat("Extract ", Listed(fields.names), " as JSON.", fields.descriptions);
}

std::string ExtractionWords(const std::string& schema) {
  const Fields fields = FieldsOf(schema);
  return absl::StrCat(absl::StrJoin(fields.names, "\n"), fields.descriptions);
}

}  // namespace lm
