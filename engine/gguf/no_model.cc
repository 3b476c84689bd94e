#include "engine/gguf/no_model.h"

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/list_folder.h"
#include "engine/base/printable.h"
#include "engine/base/status_macros.h"

namespace lm {

absl::Status NoModelIn(const std::string& folder, const absl::Status& error) {
  std::string file, hint;
  for (const std::string& path : ListFolder(folder).value_or(std::vector<std::string>())) {
    const std::string name = std::filesystem::path(path).filename().string();
    if (name == "adapter_config.json") {
      hint =
          "; it is a folder of an adapter (PEFT's), which is read as the GGUF file that "
          "llama.cpp's converter makes of it";
    } else if (file.empty() && absl::EndsWith(name, ".gguf")) {
      file = path;
    }
  }
  if (!file.empty()) hint = absl::StrCat("; a file in it is '", Printable(file), "'");
  return absl::Status(error.code(), absl::StrCat(error.message(), hint));
}

absl::Status CheckNoGitPointer(const RandomAccessFile& file) {
  constexpr absl::string_view kBegins = "version https://git-lfs.";
  char begin[kBegins.size()];
  if (file.Size() < sizeof(begin)) return absl::OkStatus();
  RETURN_IF_ERROR(file.Read(0, absl::MakeSpan(begin)));
  if (absl::string_view(begin, sizeof(begin)) != kBegins) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "only a pointer of Git LFS to the file (\"git lfs pull\" fetches it)");
}

}  // namespace lm
