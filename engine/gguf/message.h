// How this folder speaks of what it found in a file: names quoted, cut and free of control bytes.
#ifndef LM_ENGINE_GGUF_MESSAGE_H_
#define LM_ENGINE_GGUF_MESSAGE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace lm {

// `name` in double quotes, everything but printable ASCII as \xNN, cut after 80 bytes.
std::string Quoted(absl::string_view name);

// The same error with "where: " before its message.
absl::Status InContext(absl::string_view where, const absl::Status& status);

}  // namespace lm

#endif  // LM_ENGINE_GGUF_MESSAGE_H_
