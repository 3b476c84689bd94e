// Levenshtein's distance, for "did you mean".
#ifndef LM_ENGINE_BASE_EDIT_DISTANCE_H_
#define LM_ENGINE_BASE_EDIT_DISTANCE_H_

#include <cstddef>

#include "absl/strings/string_view.h"

namespace lm {

// How many bytes must be replaced, added or removed to make one of the other. Of `a` the first
// kComparedBytes count.
inline constexpr size_t kComparedBytes = 40;
size_t EditDistance(absl::string_view a, absl::string_view b);

}  // namespace lm

#endif  // LM_ENGINE_BASE_EDIT_DISTANCE_H_
