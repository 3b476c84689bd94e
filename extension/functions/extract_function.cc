// lm_extract(text, schema [, options])   JSON: what the text says, in the schema's fields
//
//   SELECT lm_extract('Ada Lovelace, born in London in 1815.',
//     '{"type":"object","properties":{"name":{"type":"string"},"year":{"type":"integer"},
//                                     "employer":{"type":"string"}}}');
//   CREATE TEMP TABLE people AS
//     SELECT id, fields->>'name' AS name, fields->>'year' AS year
//       FROM (SELECT id, lm_extract(body, :schema) AS fields FROM letters);
//
//   SELECT lm_extract(body, '["name","born"]') FROM letters;             -- texts of these names
//   SELECT lm_extract(body, '{"name":"of the writer","born":"a year"}') FROM letters;
//
// `schema` is a JSON Schema as generate_json takes it, or short for one: an array of names, or an
// object from names to what they mean, stand for an object with these properties, which are texts.
// An object is a JSON Schema where all its keys are keywords of that; {"title":"of the book"} could
// be both, and is an error.
//
// Every property that is named is in the answer, and null where the text does not tell; one that
// the schema lists as `required` is never null. An answer for which max_tokens is too short is led
// to its end in time ({"on_length":"complete"}, the default here); lm_try's or lm_each's `finish`
// is "length" then. The model is told
//   Extract {names} as JSON.
// and the `description` of each property that has one, in the system prompt, which all rows share.
// A schema whose top is no object with properties is shown to it as it is.
//
// The value has the JSON subtype. A NULL text gives NULL.
#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "engine/base/json.h"
#include "engine/base/printable.h"
#include "engine/base/status_macros.h"
#include "engine/grammar/grammar.h"
#include "extension/batch/look_ahead.h"
#include "extension/functions/constrained_options.h"
#include "extension/functions/functions.h"

namespace lm {
namespace {

// "a, b and c".
std::string Listed(const std::vector<std::string>& names) {
  if (names.size() < 2) return absl::StrJoin(names, "");
  return absl::StrCat(absl::StrJoin(absl::MakeSpan(names).first(names.size() - 1), ", "), " and ",
                      names.back());
}

absl::Status Ambiguous(const std::string& name) {
  return absl::InvalidArgumentError(absl::StrCat(
      "schema: is \"", name, "\" a field, or a keyword of a JSON Schema? For a field, write {",
      R"("properties":{)", JsonString(name), R"(:{"type":"string","description":"..."}}})"));
}

// The schema that `text` is, or is short for. What is neither is left to whoever compiles it.
absl::StatusOr<std::string> SchemaOf(const std::string& text) {
  const std::optional<Json> given = Json::Parse(text);
  if (!given || !given->is_structured()) return text;
  Json properties = Json::MakeObject();
  auto add = [&properties](const std::string& name, const std::string& description) {
    if (properties.Has(name)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "schema: the field \"", Printable(name), "\" is there twice"));
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
    if (members.empty() || !of_texts) return text;
    const bool is_schema = std::all_of(members.begin(), members.end(), [](const Json::Member& m) {
      return IsSchemaKeyword(m.first);
    });
    // These ask for something; all others with texts as their values only comment.
    constexpr absl::string_view kAsking[] = {"type", "$ref", "const", "format", "pattern"};
    const bool asks = std::any_of(std::begin(kAsking), std::end(kAsking),
                                  [&given](absl::string_view name) { return given->Has(name); });
    if (is_schema && !asks) return Ambiguous(members.front().first);
    if (is_schema) return text;
    for (const auto& [name, description] : members) {
      RETURN_IF_ERROR(add(name, description.string()));
    }
  }
  Json schema = Json::MakeObject();
  schema.Add("type", "object");
  schema.Add("properties", std::move(properties));
  return schema.Dump();
}

// REQUIRES: the schema compiles.
std::string ExtractionPrompt(const std::string& schema) {
  const std::optional<Json> document = Json::Parse(schema);
  const Json* properties = document ? document->Find("properties") : nullptr;
  std::vector<std::string> names;
  std::string descriptions;
  if (properties != nullptr && properties->is_object()) {
    for (const auto& [name, property] : properties->members()) {
      names.push_back(name);
      const Json* description = property.Find("description");
      if (description == nullptr || !description->is_string()) continue;
      absl::StrAppend(&descriptions, "\n- ", name, ": ", description->string());
    }
  }
  if (names.empty()) {
    return absl::StrCat("Extract what the text says as JSON of this schema: ", schema);
  }
  return absl::StrCat("Extract ", Listed(names), " as JSON.", descriptions);
}

absl::Status Extract(Call& call) {
  if (call.IsNull(0)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string given, NeededText(call, 1, "schema"));
  ASSIGN_OR_RETURN(const std::string schema, SchemaOf(given));
  ASSIGN_OR_RETURN(std::shared_ptr<const CallOptions> options,
                   ConstrainedOptions(call, 2, {AnswerConstraint::Kind::kExtraction, schema},
                                      {.on_length = OnLength::kComplete}));
  return AnswerRow(call,
                   {.prompt = call.Text(0, "text"),
                    .system = ExtractionPrompt(schema),
                    .options = std::move(options)},
                   AnswerType::kJson);
}

}  // namespace

int RegisterExtract(const std::shared_ptr<Connection>& connection) {
  return RegisterScalar<&Extract>(connection, {"lm_extract", 2, 3, kDirectOnly | kReturnsJson});
}

}  // namespace lm
