// What is said of a key of a call's options that the call does not know.
#ifndef LM_EXTENSION_CONNECTION_UNKNOWN_OPTION_H_
#define LM_EXTENSION_CONNECTION_UNKNOWN_OPTION_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace lm {

// Whether a call may not have the key, unless it is its function's own.
bool IsUnknownOption(absl::string_view name);

// InvalidArgument: that it is a setting, an option of other functions, or which of generate()'s and
// `own`, the function's, is the nearest. REQUIRES: IsUnknownOption(name).
absl::Status UnknownOptionOfCall(absl::string_view name, absl::Span<const std::string> own = {});

}  // namespace lm

#endif  // LM_EXTENSION_CONNECTION_UNKNOWN_OPTION_H_
