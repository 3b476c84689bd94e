// lm_classify(text, labels [, instruction [, options]])   TEXT: one of the labels
//
//   SELECT lm_classify('The battery lasts two days.', '["praise","complaint","question"]');
//   SELECT lm_classify(body, '{"bug":"something does not work","wish":"something is missing"}',
//                      'Sort the letter to the maintainers.') AS kind, count(*)
//     FROM letters GROUP BY kind;
//
// `labels` is a JSON array of strings, or an object from each label to what it means. The answer is
// exactly one of them: the model can say nothing else. The model is told
//   {instruction} Answer with one of: {labels}.          without one: Classify the text as one of
//   ...
// and the descriptions, a line each, in the system prompt, which all rows share; the text is its
// user's part. Labels that differ in their first token cost no decode step.
//
// A NULL text gives NULL. Labels that are none, or of another type, are errors that name them.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "extension/batch/look_ahead.h"
#include "extension/functions/constrained_options.h"
#include "extension/functions/functions.h"
#include "extension/functions/labels.h"

namespace lm {
namespace {

absl::Status Classify(Call& call) {
  if (call.IsNull(0)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string json, NeededText(call, 1, "labels"));
  ASSIGN_OR_RETURN(const std::vector<Label> labels, ParseLabels(json));
  ASSIGN_OR_RETURN(const std::optional<std::string> instruction, call.Text(2, "instruction"));
  ASSIGN_OR_RETURN(
      std::shared_ptr<const CallOptions> options,
      ConstrainedOptions(call, 3, {AnswerConstraint::Kind::kChoices, ChoicesOf(labels)}));
  std::string system = instruction.has_value() && !instruction->empty()
                           ? absl::StrCat(*instruction, " Answer with one of: ")
                           : "Classify the text as one of ";
  absl::StrAppend(&system, NamesOf(labels), ".", DescriptionsOf(labels));
  return AnswerRow(
      call,
      {.prompt = call.Text(0, "text"), .system = std::move(system), .options = std::move(options)});
}

}  // namespace

int RegisterClassify(const std::shared_ptr<Connection>& connection) {
  return RegisterScalar<&Classify>(connection, {"lm_classify", 2, 4, kDirectOnly | kReturnsJson});
}

}  // namespace lm
