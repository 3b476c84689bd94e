// Cascades: a small model answers, and where it is not sure enough a larger one does.
//
//   ASSIGN_OR_RETURN(const OwnOptions own, OwnOptions::Take(json, {"escalate"}));
//   ASSIGN_OR_RETURN(row.options, ...own.rest()...);
//   RETURN_IF_ERROR(AddEscalation(own, ConfidenceInAnswer, use, constrain, &row));
//
// What decides is how probable the first model finds its own answer, by its logits: of a yes or no
// the share of the two, of a label or of JSON the product of its tokens' probabilities, each among
// those that the labels or the schema allowed. Both models are asked the same question, with the
// same options. Rows decode together in each of them (batch/pending_answer.h).
#ifndef LM_EXTENSION_QUESTIONS_CASCADE_H_
#define LM_EXTENSION_QUESTIONS_CASCADE_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/base/json.h"
#include "extension/batch/row_prompt.h"
#include "extension/connection/own_options.h"

namespace lm {

// The function's options of a model, its constraint among them, from their JSON.
using ReadOptions = absl::FunctionRef<absl::StatusOr<std::shared_ptr<const CallOptions>>(
    const std::optional<std::string>& json)>;

// {"model": "large", "below": 0.9}. InvalidArgument, naming what is wrong, for anything else.
// Without `needs_below` that may be missing, and is 0 then.
struct EscalateOption {
  std::string model;
  double below = 0;
};
absl::StatusOr<EscalateOption> ParseEscalate(const Json& value, bool needs_below = true);

// The same options for the other model. One elsewhere cannot be told how much it reasons, as this
// one may be.
absl::StatusOr<std::shared_ptr<const CallOptions>> ReadForModel(const OwnOptions& own,
                                                                absl::string_view model,
                                                                ReadOptions read);

// Where `own` has the option escalate, adds it to the row, whose options are read already.
// InvalidArgument where the option is wrong, or beside a vote or several answers.
absl::Status AddEscalation(const OwnOptions& own, double (*confidence)(const Generation&),
                           ReadOptions read, RowPrompt* row);

// How probable the answer is: of one that was weighed (RowPrompt::weighs), and of a yes or no.
double ConfidenceInAnswer(const Generation& answer);
double ConfidenceInYesOrNo(const Generation& answer);

}  // namespace lm

#endif  // LM_EXTENSION_QUESTIONS_CASCADE_H_
