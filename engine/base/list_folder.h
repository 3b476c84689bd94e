// What lies in a folder. (The iterators of std::filesystem end the process where they find no
// memory: libstdc++ has them throw out of functions that may not.)
#ifndef LM_ENGINE_BASE_LIST_FOLDER_H_
#define LM_ENGINE_BASE_LIST_FOLDER_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace lm {

// The paths of all that is in it, but of "." and "..", sorted. Unavailable, naming it, where it
// cannot be read.
absl::StatusOr<std::vector<std::string>> ListFolder(const std::string& folder);

}  // namespace lm

#endif  // LM_ENGINE_BASE_LIST_FOLDER_H_
