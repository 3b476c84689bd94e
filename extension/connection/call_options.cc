#include "extension/connection/call_options.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/base/json.h"
#include "engine/base/status_macros.h"
#include "engine/runtime/constraint_cache.h"
#include "extension/connection/unknown_option.h"

namespace lm {
namespace {

// ParseGenerationOptions, whose error says what an option is that it does not know.
absl::Status Parse(absl::string_view json, GenerationOptions* options) {
  absl::Status status = ParseGenerationOptions(json, options);
  if (status.ok()) return status;
  const std::optional<Json> object = Json::Parse(json);
  if (!object || !object->is_object()) return status;
  for (const auto& [name, value] : object->members()) {
    if (IsUnknownOption(name)) return UnknownOptionOfCall(name);
  }
  return status;
}

// What the function, the settings and the call say, the last word counts.
absl::StatusOr<GenerationOptions> Over(const std::string& settings,
                                       const std::optional<std::string>& json,
                                       const CallDefaults& defaults) {
  GenerationOptions options;
  options.on_error = defaults.on_error;
  options.priority = defaults.priority;
  options.on_length = defaults.on_length;
  if (!settings.empty()) RETURN_IF_ERROR(ParseGenerationOptions(settings, &options));
  if (json.has_value()) RETURN_IF_ERROR(Parse(*json, &options));
  return options;
}

// What only answers have.
constexpr absl::string_view kOfAnswers[] = {"max_tokens",
                                            "temperature",
                                            "top_k",
                                            "top_p",
                                            "min_p",
                                            "repeat_penalty",
                                            "seed",
                                            "vote",
                                            "n",
                                            "best_of",
                                            "stop",
                                            "choices",
                                            "regex",
                                            "schema",
                                            "grammar",
                                            "json_spaces",
                                            "additional",
                                            "strict_schema",
                                            "logit_bias",
                                            "examples",
                                            "messages",
                                            "thinking",
                                            "thinking_tokens",
                                            "on_length",
                                            "speculate",
                                            "template_args"};

}  // namespace

absl::Status CheckNoneOfAnswers(const std::optional<std::string>& json) {
  const std::optional<Json> object = json.has_value() ? Json::Parse(*json) : std::nullopt;
  if (!object || !object->is_object()) return absl::OkStatus();
  for (const auto& [name, value] : object->members()) {
    if (std::find(std::begin(kOfAnswers), std::end(kOfAnswers), name) == std::end(kOfAnswers)) {
      continue;
    }
    return absl::InvalidArgumentError(
        absl::StrCat("option '", name, "' is for answers that are generated, and here none is"));
  }
  return absl::OkStatus();
}

absl::Status CheckPrices(double max_cost, const Prices& prices) {
  if (max_cost == 0 || prices.known()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("max_cost = ", max_cost, " needs the model's prices: its options in ",
                   "temp.lm_models have neither price_in nor price_out, of a million tokens"));
}

absl::Status CheckBudget(const CallOptions& options) {
  return CheckPrices(options.generation.max_cost, options.model->prices);
}

absl::Status CheckCallOptions(absl::string_view json) {
  GenerationOptions options;
  RETURN_IF_ERROR(Parse(json, &options));
  if (options.constraint.kind == AnswerConstraint::Kind::kNone) return absl::OkStatus();
  return CompileNotation(options.constraint).status();
}

absl::StatusOr<CallOptions> ReadCallOptions(
    const std::optional<std::string>& json, OptionsCache& cache,
    absl::FunctionRef<absl::StatusOr<std::shared_ptr<const ModelUse>>(const std::string&)> use,
    const CallDefaults& defaults) {
  auto read = [&](const std::string& settings, const CallDefaults& own) {
    return cache.Get(settings, json, own, [&] { return Over(settings, json, own); });
  };
  ASSIGN_OR_RETURN(const std::shared_ptr<const GenerationOptions> alone, read("", {}));
  CallOptions options;
  ASSIGN_OR_RETURN(options.model, use(alone->model));
  ASSIGN_OR_RETURN(const std::shared_ptr<const GenerationOptions> all,
                   read(options.model->options, defaults));
  options.generation = *all;
  // lm_settings has it for models of this machine; no other can be told.
  const bool elsewhere = options.generator().engine() == nullptr;
  if (elsewhere && !alone->thinking_tokens.has_value()) options.generation.thinking_tokens.reset();
  RETURN_IF_ERROR(CheckBudget(options));
  RETURN_IF_ERROR(options.generator().AdaptersOf(options.generation).status());
  RETURN_IF_ERROR(options.generator().CheckConstraint(options.generation));
  return options;
}

absl::StatusOr<GenerationOptions> ReadGenerationOptions(const std::optional<std::string>& json,
                                                        const Settings& settings,
                                                        const CallDefaults& defaults) {
  return Over(settings.OptionsJson(), json, defaults);
}

absl::StatusOr<CallOptions> ReadCallOptions(const std::optional<std::string>& json,
                                            Connection& connection, const CallDefaults& defaults) {
  ASSIGN_OR_RETURN(
      CallOptions options,
      ReadCallOptions(
          json, connection.options_cache(),
          [&connection](const std::string& reference) { return connection.Use(reference); },
          defaults));
  RETURN_IF_ERROR(connection.examples().Resolve(&options.generation));
  connection.NoteSchema(options.generation.constraint);
  return options;
}

}  // namespace lm
