// Errors of a path that leads to no model, which say what it leads to.
#ifndef LM_ENGINE_GGUF_NO_MODEL_H_
#define LM_ENGINE_GGUF_NO_MODEL_H_

#include <string>

#include "absl/status/status.h"
#include "engine/base/file.h"

namespace lm {

// `error`, which says that a folder has no config.json, and what it has.
absl::Status NoModelIn(const std::string& folder, const absl::Status& error);

// InvalidArgument where the file is what git leaves in the place of a large one that it has not
// fetched.
absl::Status CheckNoGitPointer(const RandomAccessFile& file);

}  // namespace lm

#endif  // LM_ENGINE_GGUF_NO_MODEL_H_
