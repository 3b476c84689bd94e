// The options argument of a function, and the model that it names.
#ifndef LM_EXTENSION_CALL_OPTIONS_H_
#define LM_EXTENSION_CALL_OPTIONS_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "extension/connection.h"

namespace lm {

struct CallOptions {
  std::shared_ptr<const ModelUse> model;
  GenerationOptions generation;

  const Session& session() const { return model->session; }
  const Tokenizer& tokenizer() const { return model->session.model().tokenizer(); }
};

// Reads the JSON object `json`, if there is one, over the settings' defaults; where it has no
// on_error, that is `on_error`. `use` finds the model that it names.
absl::StatusOr<CallOptions> ReadCallOptions(
    const std::optional<std::string>& json,
    absl::FunctionRef<absl::StatusOr<std::shared_ptr<const ModelUse>>(const std::string& reference)>
        use,
    OnError on_error = OnError::kError);

// The same with the connection's model of that name.
absl::StatusOr<CallOptions> ReadCallOptions(const std::optional<std::string>& json,
                                            Connection& connection,
                                            OnError on_error = OnError::kError);

}  // namespace lm

#endif  // LM_EXTENSION_CALL_OPTIONS_H_
