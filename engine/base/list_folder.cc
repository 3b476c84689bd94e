#include "engine/base/list_folder.h"

#include <dirent.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"

namespace lm {

absl::StatusOr<std::vector<std::string>> ListFolder(const std::string& folder) {
  DIR* const entries = opendir(folder.c_str());
  if (entries == nullptr) {
    return absl::UnavailableError(absl::StrCat("'", folder, "': ", std::strerror(errno)));
  }
  const absl::Cleanup closed = [entries] { closedir(entries); };
  std::vector<std::string> paths;
  for (const dirent* entry; (entry = readdir(entries)) != nullptr;) {
    const absl::string_view name = entry->d_name;
    if (name != "." && name != "..") paths.push_back(absl::StrCat(folder, "/", name));
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace lm
