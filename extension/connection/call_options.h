// The options argument of a function, and the model that it names.
#ifndef LM_EXTENSION_CONNECTION_CALL_OPTIONS_H_
#define LM_EXTENSION_CONNECTION_CALL_OPTIONS_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "extension/connection/connection.h"
#include "extension/connection/options_cache.h"

namespace lm {

struct CallOptions {
  std::shared_ptr<const ModelUse> model;
  GenerationOptions generation;

  const Session& session() const { return model->session; }
  const Generator& generator() const { return model->session.generator(); }
  // The system prompt of a call: the one it gives, if it does, else the settings'. Refers to
  // either.
  absl::string_view SystemOf(const std::optional<std::string>& given) const {
    return given.has_value() ? absl::string_view(*given) : model->system;
  }
  absl::StatusOr<const Tokenizer*> tokenizer() const { return generator().tokenizer(); }
};

// Reads the JSON object `json`, if there is one, over the settings' and the function's defaults.
// `use` finds the model that it names; `cache` is the connection's.
absl::StatusOr<CallOptions> ReadCallOptions(
    const std::optional<std::string>& json, OptionsCache& cache,
    absl::FunctionRef<absl::StatusOr<std::shared_ptr<const ModelUse>>(const std::string& reference)>
        use,
    const CallDefaults& defaults = {});

// The same with the connection's model of that name.
absl::StatusOr<CallOptions> ReadCallOptions(const std::optional<std::string>& json,
                                            Connection& connection,
                                            const CallDefaults& defaults = {});

// Those of a call whose model is not looked at; whether the constraint compiles is not, either.
absl::StatusOr<GenerationOptions> ReadGenerationOptions(const std::optional<std::string>& json,
                                                        const Settings& settings,
                                                        const CallDefaults& defaults);

// InvalidArgument where a cost is limited (0: it is not), and the model has no prices.
absl::Status CheckPrices(double max_cost, const Prices& prices);
// The same of a call's options.
absl::Status CheckBudget(const CallOptions& options);

// InvalidArgument, naming it, where options ask for something of an answer, of a function that has
// the model make none. What is no JSON object is left to whoever reads it.
absl::Status CheckNoneOfAnswers(const std::optional<std::string>& json);

// What is wrong with options whatever the model: an unknown key, a type, a value out of range, a
// constraint that does not compile.
absl::Status CheckCallOptions(absl::string_view json);

}  // namespace lm

#endif  // LM_EXTENSION_CONNECTION_CALL_OPTIONS_H_
