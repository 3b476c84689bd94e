#include "extension/functions/constrained_options.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"

namespace lm {

absl::StatusOr<std::string> NeededText(const Call& call, int i, absl::string_view what) {
  ASSIGN_OR_RETURN(std::optional<std::string> text, call.Text(i, what));
  if (!text.has_value()) return absl::InvalidArgumentError(absl::StrCat(what, " must not be NULL"));
  return *std::move(text);
}

absl::StatusOr<std::shared_ptr<const CallOptions>> ConstrainedOptions(
    const Call& call, int i, AnswerConstraint constraint, const CallDefaults& defaults) {
  ASSIGN_OR_RETURN(CallOptions options, call.Options(i, defaults));
  const AnswerConstraint::Kind given = options.generation.constraint.kind;
  if (given != AnswerConstraint::Kind::kNone) {
    return absl::InvalidArgumentError(
        absl::StrCat("option '", ConstraintName(given),
                     "' is for generate(): this function says itself what its answers look like"));
  }
  constraint.json_spaces = options.generation.constraint.json_spaces;
  options.generation.constraint = std::move(constraint);
  RETURN_IF_ERROR(ValidateGenerationOptions(options.generation));
  RETURN_IF_ERROR(options.generator().CheckConstraint(options.generation));
  return std::make_shared<const CallOptions>(std::move(options));
}

}  // namespace lm
