// What the functions share whose answers are constrained by an argument of theirs.
//
//   ASSIGN_OR_RETURN(std::shared_ptr<const CallOptions> options,
//                    ConstrainedOptions(call, 3, {AnswerConstraint::Kind::kSchema, schema}));
//   return AnswerRow(call, {.prompt = call.Text(0, "text"), .options = options});
//
// Mistakes in the arguments that make the question (a schema, labels, options) are the statement's;
// what is wrong with a row's own text goes the way of on_error.
#ifndef LM_EXTENSION_QUESTIONS_CONSTRAINED_OPTIONS_H_
#define LM_EXTENSION_QUESTIONS_CONSTRAINED_OPTIONS_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "extension/binding/scalar_function.h"
#include "extension/binding/table_function.h"

namespace lm {

// Argument i, which must not be NULL: it is part of the statement's question.
absl::StatusOr<std::string> NeededText(const Call& call, int i, absl::string_view what);
absl::StatusOr<std::string> NeededText(const TableArguments& args, int i, absl::string_view what);

// The options with this constraint. InvalidArgument where they have one of their own, and where
// this one does not compile.
absl::StatusOr<std::shared_ptr<const CallOptions>> Constrained(CallOptions options,
                                                               AnswerConstraint constraint);

// The same of the options in argument i.
absl::StatusOr<std::shared_ptr<const CallOptions>> ConstrainedOptions(
    const Call& call, int i, AnswerConstraint constraint, const CallDefaults& defaults = {});
// ... or in this text.
absl::StatusOr<std::shared_ptr<const CallOptions>> ConstrainedOptions(
    const Call& call, const std::optional<std::string>& json, AnswerConstraint constraint,
    const CallDefaults& defaults = {});

}  // namespace lm

#endif  // LM_EXTENSION_QUESTIONS_CONSTRAINED_OPTIONS_H_
