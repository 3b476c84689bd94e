// What the functions share whose answers are constrained by an argument of theirs.
//
//   ASSIGN_OR_RETURN(CallOptions options,
//                    ConstrainedOptions(call, 3, {AnswerConstraint::Kind::kSchema, schema}));
//   ASSIGN_OR_RETURN(Generation answer, Ask(call, {call.Text(0, "text"), system}, options));
//   return ResultAnswer(call, answer, options, AnswerType::kJson);
//
// Mistakes in the arguments that make the question (a schema, labels, options) are the statement's;
// what is wrong with a row's own text goes the way of on_error.
#ifndef LM_EXTENSION_CONSTRAINED_ROW_H_
#define LM_EXTENSION_CONSTRAINED_ROW_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "extension/scalar_function.h"

namespace lm {

// Argument i, which must not be NULL: it is part of the statement's question.
absl::StatusOr<std::string> NeededText(const Call& call, int i, absl::string_view what);

// The options in argument i, with this constraint. InvalidArgument where they have one of their
// own, and where this one does not compile.
absl::StatusOr<CallOptions> ConstrainedOptions(const Call& call, int i,
                                               AnswerConstraint constraint);

struct ConstrainedRow {
  absl::StatusOr<std::string> text;
  std::string system;
  // Where there is one, it is asked behind the text, and the answer has its first_choices.
  std::string question = "";
};

// The model's answer, or in its status why this row has none. Cancelled on an interrupt.
absl::StatusOr<Generation> Ask(const Call& call, const ConstrainedRow& row,
                               const CallOptions& options);

enum class AnswerType { kText, kJson };

// Sets the call's result: the answer, or what on_error wants of a row that failed.
absl::Status ResultAnswer(const Call& call, const Generation& answer, const CallOptions& options,
                          AnswerType type);

}  // namespace lm

#endif  // LM_EXTENSION_CONSTRAINED_ROW_H_
