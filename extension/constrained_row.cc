#include "extension/constrained_row.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "extension/generation_json.h"
#include "extension/interrupt.h"

namespace lm {
namespace {

absl::StatusOr<std::shared_ptr<Request>> Submit(const ConstrainedRow& row,
                                                const CallOptions& options) {
  RETURN_IF_ERROR(row.text.status());
  const Session& session = options.session();
  return row.question.empty()
             ? session.Submit(*row.text, row.system, options.generation)
             : session.SubmitChoice(*row.text, row.question, row.system, options.generation);
}

}  // namespace

absl::StatusOr<std::string> NeededText(const Call& call, int i, absl::string_view what) {
  ASSIGN_OR_RETURN(std::optional<std::string> text, call.Text(i, what));
  if (!text.has_value()) return absl::InvalidArgumentError(absl::StrCat(what, " must not be NULL"));
  return *std::move(text);
}

absl::StatusOr<CallOptions> ConstrainedOptions(const Call& call, int i,
                                               AnswerConstraint constraint) {
  ASSIGN_OR_RETURN(CallOptions options, call.Options(i));
  const AnswerConstraint::Kind given = options.generation.constraint.kind;
  if (given != AnswerConstraint::Kind::kNone) {
    return absl::InvalidArgumentError(
        absl::StrCat("option '", ConstraintName(given),
                     "' is for generate(): this function says itself what its answers look like"));
  }
  options.generation.constraint = std::move(constraint);
  RETURN_IF_ERROR(ValidateGenerationOptions(options.generation));
  RETURN_IF_ERROR(options.session().engine().CheckConstraint(options.generation));
  return options;
}

absl::StatusOr<Generation> Ask(const Call& call, const ConstrainedRow& row,
                               const CallOptions& options) {
  absl::StatusOr<std::shared_ptr<Request>> request = Submit(row, options);
  if (!request.ok()) return Generation{.status = request.status()};
  RETURN_IF_ERROR(Await(call.connection().db(), **request));
  Generation answer = (*request)->result();
  answer.status = GenerationStatus(answer);
  return answer;
}

absl::Status ResultAnswer(const Call& call, const Generation& answer, const CallOptions& options,
                          AnswerType type) {
  if (answer.status.ok()) {
    (type == AnswerType::kJson ? ResultJson : ResultText)(call.context(), answer.text);
    return absl::OkStatus();
  }
  switch (options.generation.on_error) {
    case OnError::kError:
      break;
    case OnError::kNull:
      sqlite3_result_null(call.context());
      return absl::OkStatus();
    case OnError::kJson:
      ResultJson(call.context(), GenerationJson(answer));
      return absl::OkStatus();
  }
  return answer.status;
}

}  // namespace lm
