// Files that this user's processes have written for one another, in folders that others may write
// to.
#ifndef LM_ENGINE_BASE_OWN_FILE_H_
#define LM_ENGINE_BASE_OWN_FILE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

struct stat;

namespace lm {

// OK for a plain file of this user, or root, that nobody else may write to; else
// FailedPrecondition, naming it.
absl::Status CheckOwnFile(const struct stat& info, absl::string_view path);

// Opens such a file to read it; of a link, nothing. NotFound where it cannot be opened.
absl::StatusOr<int> OpenOwnFile(const std::string& path, uint64_t* bytes);

}  // namespace lm

#endif  // LM_ENGINE_BASE_OWN_FILE_H_
