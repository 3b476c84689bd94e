// Which functions of a connection are SQLite's own and touch nothing, by PRAGMA function_list.
#ifndef LM_EXTENSION_HOST_OWN_FUNCTION_H_
#define LM_EXTENSION_HOST_OWN_FUNCTION_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace lm {

// Of a row of the list. A function that the host has put in the place of one of SQLite's is a row
// of its own.
bool IsOwnAndInnocuous(absl::string_view name, bool built_in, int64_t flags);

}  // namespace lm

#endif  // LM_EXTENSION_HOST_OWN_FUNCTION_H_
