// Untrusted text as a message shows it.
#ifndef LM_ENGINE_BASE_PRINTABLE_H_
#define LM_ENGINE_BASE_PRINTABLE_H_

#include <string>

#include "absl/strings/string_view.h"

namespace lm {

// Control characters and bytes that are no UTF-8 as \n, \t, \r or \x1b; all else, quotes and
// backslashes too, as it is: a message is read by people, or written into JSON, which has escapes
// of its own.
std::string Printable(absl::string_view text);

}  // namespace lm

#endif  // LM_ENGINE_BASE_PRINTABLE_H_
