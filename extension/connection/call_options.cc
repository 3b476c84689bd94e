#include "extension/connection/call_options.h"

#include "engine/base/status_macros.h"

namespace lm {

absl::StatusOr<CallOptions> ReadCallOptions(
    const std::optional<std::string>& json,
    absl::FunctionRef<absl::StatusOr<std::shared_ptr<const ModelUse>>(const std::string&)> use,
    const CallDefaults& defaults) {
  GenerationOptions named;
  if (json.has_value()) RETURN_IF_ERROR(ParseGenerationOptions(*json, &named));
  CallOptions options;
  ASSIGN_OR_RETURN(options.model, use(named.model));
  options.generation = options.model->defaults;
  options.generation.on_error = defaults.on_error;
  options.generation.priority = defaults.priority;
  if (json.has_value()) RETURN_IF_ERROR(ParseGenerationOptions(*json, &options.generation));
  RETURN_IF_ERROR(options.generator().CheckConstraint(options.generation));
  return options;
}

absl::StatusOr<CallOptions> ReadCallOptions(const std::optional<std::string>& json,
                                            Connection& connection, const CallDefaults& defaults) {
  return ReadCallOptions(
      json, [&connection](const std::string& reference) { return connection.Use(reference); },
      defaults);
}

}  // namespace lm
