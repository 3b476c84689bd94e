// Paths that go on leading where they led when they were given, wherever the process goes later.
// "~/" means in all of them what it means to a shell.
#ifndef LM_EXTENSION_CONNECTION_ABSOLUTE_PATH_H_
#define LM_EXTENSION_CONNECTION_ABSOLUTE_PATH_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lm {

// `path`, where "~/" at its beginning means the folder that HOME names.
std::string PathFromHome(const std::string& path);

// `path` from the working directory, for what is said now and kept. InvalidArgument, which names
// `what` it is the path of, where there is no such directory any more.
absl::StatusOr<std::string> AbsolutePath(absl::string_view what, const std::string& path);

// `path` from the working directory in which the process loaded the extension, for what is read
// again at each use: an environment variable, a folder in a model's options. Empty stays empty.
std::string PathFromStart(const std::string& path);

// Takes note of that directory. The first call in a process counts.
void NoteStart();

}  // namespace lm

#endif  // LM_EXTENSION_CONNECTION_ABSOLUTE_PATH_H_
