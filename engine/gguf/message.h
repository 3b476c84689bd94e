// How this folder speaks of what it found in a file: names quoted, cut and free of control bytes.
#ifndef LM_ENGINE_GGUF_MESSAGE_H_
#define LM_ENGINE_GGUF_MESSAGE_H_

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace lm {

// `name` in double quotes, everything but printable ASCII as \xNN, cut after 80 bytes.
std::string Quoted(absl::string_view name);

// `text` or, where it is longer, its first whole characters of at most so many bytes.
// REQUIRES: it is UTF-8.
std::string Excerpt(absl::string_view text, size_t most_bytes);

// The same error with "where: " before its message.
absl::Status InContext(absl::string_view where, const absl::Status& status);

}  // namespace lm

#endif  // LM_ENGINE_GGUF_MESSAGE_H_
