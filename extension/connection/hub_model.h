// Models of the hub, as lm_models takes them: hf:owner/name:quantisation.
#ifndef LM_EXTENSION_CONNECTION_HUB_MODEL_H_
#define LM_EXTENSION_CONNECTION_HUB_MODEL_H_

#include <string>

#include "absl/status/statusor.h"
#include "extension/connection/connection.h"

namespace lm {

// The file of the model that `path` names, downloaded where it is not there yet (hub_download.h);
// of a split one the first. Cancelled where the statement is interrupted; PermissionDenied, with
// the command that brings it another way, where the network is off.
absl::StatusOr<std::string> FetchHubModel(const Connection& connection, const std::string& path);

// The same where it is there already. NotFound, with the statement that downloads it, where it is
// not. Nothing is asked of the network.
absl::StatusOr<std::string> FindHubModel(const std::string& path);

}  // namespace lm

#endif  // LM_EXTENSION_CONNECTION_HUB_MODEL_H_
