#include "extension/questions/constrained_options.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"

namespace lm {
namespace {

absl::StatusOr<std::string> NotNull(absl::StatusOr<std::optional<std::string>> text,
                                    absl::string_view what) {
  RETURN_IF_ERROR(text.status());
  if (text->has_value()) return **std::move(text);
  return absl::InvalidArgumentError(absl::StrCat(what, " must not be NULL"));
}

}  // namespace

absl::StatusOr<std::string> NeededText(const Call& call, int i, absl::string_view what) {
  return NotNull(call.Text(i, what), what);
}

absl::StatusOr<std::string> NeededText(const TableArguments& args, int i, absl::string_view what) {
  return NotNull(args.Text(i), what);
}

absl::StatusOr<std::shared_ptr<const CallOptions>> Constrained(CallOptions options,
                                                               AnswerConstraint constraint) {
  const AnswerConstraint::Kind given = options.generation.constraint.kind;
  if (given != AnswerConstraint::Kind::kNone) {
    return absl::InvalidArgumentError(
        absl::StrCat("option '", ConstraintName(given),
                     "' is for generate(): this function says itself what its answers look like"));
  }
  constraint.json_spaces = options.generation.constraint.json_spaces;
  constraint.additional = options.generation.constraint.additional;
  constraint.strict_schema = options.generation.constraint.strict_schema;
  options.generation.constraint = std::move(constraint);
  RETURN_IF_ERROR(ValidateGenerationOptions(options.generation));
  RETURN_IF_ERROR(options.generator().CheckConstraint(options.generation));
  return std::make_shared<const CallOptions>(std::move(options));
}

absl::StatusOr<std::shared_ptr<const CallOptions>> ConstrainedOptions(
    const Call& call, int i, AnswerConstraint constraint, const CallDefaults& defaults) {
  ASSIGN_OR_RETURN(const std::optional<std::string> json, call.Text(i, "options"));
  return ConstrainedOptions(call, json, std::move(constraint), defaults);
}

absl::StatusOr<std::shared_ptr<const CallOptions>> ConstrainedOptions(
    const Call& call, const std::optional<std::string>& json, AnswerConstraint constraint,
    const CallDefaults& defaults) {
  ASSIGN_OR_RETURN(CallOptions options, call.Options(json, defaults));
  ASSIGN_OR_RETURN(std::shared_ptr<const CallOptions> made,
                   Constrained(std::move(options), std::move(constraint)));
  call.connection().NoteSchema(made->generation.constraint);
  return made;
}

}  // namespace lm
