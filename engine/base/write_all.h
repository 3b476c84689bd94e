// A write to a file, continued where it was short or interrupted.
#ifndef LM_ENGINE_BASE_WRITE_ALL_H_
#define LM_ENGINE_BASE_WRITE_ALL_H_

#include "absl/strings/string_view.h"

namespace lm {

// Writes `bytes`, of which what is not written is left. False, and errno says why, where something
// is; no signal comes of it (NoFileSizeSignal).
bool WriteAll(int fd, absl::string_view* bytes);

}  // namespace lm

#endif  // LM_ENGINE_BASE_WRITE_ALL_H_
