#include "extension/batch/row_prompt.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "engine/base/status_macros.h"
#include "extension/binding/scalar_function.h"
#include "extension/connection/own_options.h"

namespace lm {

bool HasPrompt(const RowPrompt& row) {
  return row.prompt.ok() && row.prompt->has_value() && row.system.ok();
}

std::string PlaceOf(const RowPrompt& row) {
  auto text = [](const absl::StatusOr<std::optional<std::string>>& given) -> absl::string_view {
    if (!given.ok() || !given->has_value()) return "";
    return **given;
  };
  return absl::StrCat(text(row.system), "\n", text(row.prompt));
}

absl::StatusOr<RowPrompt> ReadRow(const Call& call, std::optional<OnError> on_error) {
  RowPrompt row{.prompt = call.Text(0, "prompt"), .system = call.Text(1, "system")};
  if (row.prompt.ok() && !row.prompt->has_value()) return row;
  if (row.system.ok() && row.system->has_value()) {
    RETURN_IF_ERROR(CheckNotOptions(**row.system, "system"));
  }
  ASSIGN_OR_RETURN(CallOptions options, call.Options(2));
  options.generation.on_error = on_error.value_or(options.generation.on_error);
  row.options = std::make_shared<const CallOptions>(std::move(options));
  return row;
}

}  // namespace lm
