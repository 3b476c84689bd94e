// The keys of an architecture's name space that nobody reads.
#ifndef LM_ENGINE_MODEL_OTHER_KEYS_H_
#define LM_ENGINE_MODEL_OTHER_KEYS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "engine/base/hash_map.h"
#include "engine/gguf/metadata.h"

namespace lm {

// A model whose metadata asks for more than is computed would run and answer wrongly.
// Unimplemented, with its value, for the first (in alphabetical order) key "<architecture>.…" of
// the file that is neither in `read` (full names) nor known to ask for nothing.
absl::Status CheckOtherKeys(const Metadata& metadata, absl::string_view architecture,
                            const HashSet<std::string>& read);

// Whether a tensor is of what reads images or sound, in the file of a model that reads text too:
// neither it nor the tower's keys are read.
bool IsTowerTensor(absl::string_view name);

}  // namespace lm

#endif  // LM_ENGINE_MODEL_OTHER_KEYS_H_
