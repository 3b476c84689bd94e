#include "extension/connection/absolute_path.h"

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace lm {
namespace {

// Empty where there is none: what is relative then stays so.
const std::filesystem::path& Start() {
  static const auto& start = *new std::filesystem::path([] {
    std::error_code error;
    return std::filesystem::current_path(error);
  }());
  return start;
}

}  // namespace

std::string PathFromHome(const std::string& path) {
  const char* const home = std::getenv("HOME");
  const bool named = home != nullptr && *home != '\0' && absl::StartsWith(path, "~/");
  return named ? absl::StrCat(home, path.substr(1)) : path;
}

absl::StatusOr<std::string> AbsolutePath(absl::string_view what, const std::string& path) {
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(PathFromHome(path), error);
  if (error) return absl::InvalidArgumentError(absl::StrCat(what, ": ", error.message()));
  return absolute.string();
}

std::string PathFromStart(const std::string& path) {
  return path.empty() ? path : (Start() / PathFromHome(path)).string();
}

void NoteStart() { Start(); }

}  // namespace lm
