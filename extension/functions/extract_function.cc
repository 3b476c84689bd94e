// lm_extract(text, schema [, options])   JSON: what the text says, in the schema's fields
//
//   SELECT lm_extract('Ada Lovelace, born in London in 1815.',
//     '{"type":"object","properties":{"name":{"type":"string"},"year":{"type":"integer"},
//                                     "employer":{"type":"string"}}}');
//   CREATE TEMP TABLE people AS
//     SELECT id, fields->>'name' AS name, fields->>'year' AS year
//       FROM (SELECT id, lm_extract(body, :schema) AS fields FROM letters);
//
// `schema` is a JSON Schema as generate_json takes it. Every property that it names is in the
// answer, and null where the text does not tell; one that the schema lists as `required` is never
// null. The model is told
//   Extract {names} as JSON.
// and the `description` of each property that has one, in the system prompt, which all rows share.
// A schema whose top is no object with properties is shown to it as it is.
//
// The value has the JSON subtype. A NULL text gives NULL.
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "engine/base/json.h"
#include "engine/base/status_macros.h"
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
  ASSIGN_OR_RETURN(const std::string schema, NeededText(call, 1, "schema"));
  ASSIGN_OR_RETURN(std::shared_ptr<const CallOptions> options,
                   ConstrainedOptions(call, 2, {AnswerConstraint::Kind::kExtraction, schema}));
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
