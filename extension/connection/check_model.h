// The option `check` of a model on the network: its servers are asked when its row is written.
#ifndef LM_EXTENSION_CONNECTION_CHECK_MODEL_H_
#define LM_EXTENSION_CONNECTION_CHECK_MODEL_H_

#include <string>

#include "absl/status/statusor.h"
#include "extension/connection/connection.h"

namespace lm {

// Where the options of the connection's model of that name say so, asks its servers for their
// models, and whether they keep to constraints. What is wrong where none of them answers, else an
// empty text. Errors: Cancelled on an interrupt; those of the servers (a wrong key, no such model).
absl::StatusOr<std::string> CheckModel(Connection& connection, const std::string& name);

}  // namespace lm

#endif  // LM_EXTENSION_CONNECTION_CHECK_MODEL_H_
