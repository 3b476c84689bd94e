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
// be both, and is an error; so is {"price":"number"}, a type in the place of what the name means.
//
// Every property that is named is in the answer, and null where the text does not tell; one that
// the schema lists as `required` is never null. An answer for which max_tokens is too short is led
// to its end in time ({"on_length":"complete"}, the default here); lm_try's or lm_each's `finish`
// is "length" then. The model is told
//   Extract {names} as JSON.
// and the `description` of each property that has one, in the system prompt, which all rows share.
// A schema whose top is no object with properties is shown to it as it is.
//
// {"model": "small", "escalate": {"model": "large", "below": 0.5}} asks the large model where the
// small one finds its whole answer less probable than `below`; lm_calibrate finds the number.
//
// The value has the JSON subtype. A NULL text gives NULL.
#include <memory>
#include <string>
#include <utility>

#include "engine/base/status_macros.h"
#include "extension/batch/await_row.h"
#include "extension/connection/own_options.h"
#include "extension/functions/functions.h"
#include "extension/questions/cascade.h"
#include "extension/questions/constrained_options.h"
#include "extension/questions/extraction.h"

namespace lm {
namespace {

absl::Status Extract(Call& call) {
  if (call.IsNull(0)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string given, NeededText(call, 1, "schema"));
  ASSIGN_OR_RETURN(const std::string schema, ExtractionSchema(given));
  ASSIGN_OR_RETURN(const std::optional<std::string> json, call.Text(2, "options"));
  ASSIGN_OR_RETURN(const OwnOptions own, OwnOptions::TakeOfCall(json, {"escalate"}));
  auto read = [&](const std::optional<std::string>& options) {
    return ConstrainedOptions(call, options, {AnswerConstraint::Kind::kExtraction, schema},
                              {.on_length = OnLength::kComplete});
  };
  RowPrompt row{.prompt = call.Text(0, "text"),
                .system = ExtractionPrompt(schema),
                .asked = ExtractionWords(schema)};
  ASSIGN_OR_RETURN(row.options, read(own.rest()));
  RETURN_IF_ERROR(AddEscalation(own, ConfidenceInAnswer, read, &row));
  return AnswerRow(call, std::move(row), AnswerType::kJson);
}

}  // namespace

int RegisterExtract(const std::shared_ptr<Connection>& connection) {
  return RegisterScalar<&Extract>(connection, {"lm_extract", 2, 3, kDirectOnly | kReturnsJson});
}

}  // namespace lm
