// generate_json(prompt, schema [, system [, options]])   JSON: an answer that is valid against the
//                                                         schema, or an error
//
//   SELECT generate_json('A red bicycle, 240 euros.',
//     '{"type":"object","required":["thing","price"],"properties":
//        {"thing":{"type":"string","maxLength":40},"price":{"type":"number","minimum":0}}}',
//     'Describe the offer as JSON with thing and price.');
//   SELECT answer->>'price'
//     FROM (SELECT generate_json(body, :schema, :system) AS answer FROM offers);
//
// The schema is JSON Schema, of drafts 4 to 2020-12: all of its keywords and formats, but for
// unevaluatedProperties and unevaluatedItems, $dynamicRef, references to other documents, unique
// items whose values are not few, and the opposite (`not`, `if`, branches of oneOf that overlap) of
// a format and of some keywords; engine/grammar/grammar.h has the list. What cannot be enforced and
// what is larger or deeper than its caps is an error that names the place, as in
// "..., at #/properties/price/type". No answer is ever invalid. Where `properties` or
// patternProperties are given and additionalProperties is not, there are no others, unless
// {"additional":true} asks for JSON Schema word for word.
//
// A member that is no keyword, and a format that is not known, is ignored and named in
// lm_stats.hint; {"strict_schema":true} makes it an error. A misspelt keyword (minlength, requird)
// is an error in any case, unless with "additional".
//
// Equal values are equal texts, for GROUP BY and DISTINCT: no white space, members in the schema's
// order, numbers and strings in their shortest form (engine/grammar/grammar.h has the rules). With
// {"json_spaces":true} the model may write a space behind ':' and ','.
//
// The schema says which texts the model can write; the model is not shown it. Say in `system` what
// the fields mean, with their names: it is the part that all rows share.
//
// The value has the JSON subtype. An answer that max_tokens or the context would cut off is an
// error of that row (see on_error), never half an object; with {"on_length":"complete"} it is led
// to the nearest end that is valid, and an error only where none was near enough. A NULL prompt
// gives NULL; a NULL schema is an error, like one that does not compile.
#include <memory>
#include <string>
#include <utility>

#include "engine/base/status_macros.h"
#include "extension/batch/await_row.h"
#include "extension/connection/own_options.h"
#include "extension/functions/functions.h"
#include "extension/questions/constrained_options.h"

namespace lm {
namespace {

absl::Status GenerateJson(Call& call) {
  if (call.IsNull(0)) return absl::OkStatus();
  ASSIGN_OR_RETURN(std::string schema, NeededText(call, 1, "schema"));
  absl::StatusOr<std::optional<std::string>> system = call.Text(2, "system");
  if (system.ok() && system->has_value()) RETURN_IF_ERROR(CheckNotOptions(**system, "system"));
  ASSIGN_OR_RETURN(
      std::shared_ptr<const CallOptions> options,
      ConstrainedOptions(call, 3, {AnswerConstraint::Kind::kSchema, std::move(schema)}));
  return AnswerRow(call,
                   {.prompt = call.Text(0, "prompt"),
                    .system = std::move(system),
                    .options = std::move(options)},
                   AnswerType::kJson);
}

}  // namespace

int RegisterGenerateJson(const std::shared_ptr<Connection>& connection) {
  return RegisterScalar<&GenerateJson>(connection,
                                       {"generate_json", 2, 4, kDirectOnly | kReturnsJson});
}

}  // namespace lm
