#include "engine/gguf/split_files.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/list_folder.h"
#include "engine/base/status_macros.h"
#include "engine/gguf/no_model.h"

namespace lm {
namespace {

constexpr absl::string_view kIndexKey = "split.no";
constexpr absl::string_view kCountKey = "split.count";
constexpr absl::string_view kTensorsKey = "split.tensors.count";
constexpr int64_t kMaxParts = 1024;  // each is an open file

// "-00002-of-00003.gguf"
std::string Suffix(int index, int count) {
  return absl::StrCat("-", absl::Dec(index + 1, absl::kZeroPad5), "-of-",
                      absl::Dec(count, absl::kZeroPad5), ".gguf");
}

// What a part's name says of its position; nothing where it is not such a name.
std::optional<SplitPosition> PositionInName(const std::string& path) {
  const size_t size = Suffix(0, 1).size();
  int number = 0, count = 0;
  if (path.size() < size ||
      std::sscanf(path.c_str() + path.size() - size, "-%5d-of-%5d.gguf", &number, &count) != 2 ||
      number < 1 || number > count || count > kMaxParts ||
      !absl::EndsWith(path, Suffix(number - 1, count))) {
    return std::nullopt;
  }
  return SplitPosition{number - 1, count};
}

// What engine/hf reads of a directory, but for weights in several files.
constexpr absl::string_view kReadOfDirectory[] = {
    "config.json",           "generation_config.json",       "tokenizer.json",
    "tokenizer_config.json", "chat_template.jinja",          "chat_template.json",
    "modules.json",          "1_Pooling/config.json",        "quantize_config.json",
    "model.safetensors",     "model.safetensors.index.json",
};

// What is no file, or leads to none, is none of those that are read.
IdentifiedFile IdentifyPart(const std::string& path) {
  return {path, IdentifyFile(path).value_or(FileIdentity())};
}

absl::StatusOr<ModelIdentity> IdentifyDirectory(const std::string& folder) {
  const absl::Status config = IdentifyFile(absl::StrCat(folder, "/config.json")).status();
  if (absl::IsNotFound(config)) return NoModelIn(folder, config);
  RETURN_IF_ERROR(config);
  ModelIdentity identity;
  for (const absl::string_view name : kReadOfDirectory) {
    identity.push_back(IdentifyPart(absl::StrCat(folder, "/", name)));
  }
  for (const std::string& path : ListFolder(folder).value_or(std::vector<std::string>())) {
    if (absl::EndsWith(path, ".safetensors") && !absl::EndsWith(path, "/model.safetensors")) {
      identity.push_back(IdentifyPart(path));
    }
  }
  return identity;
}

}  // namespace

absl::StatusOr<SplitPosition> SplitPositionOf(const Metadata& metadata) {
  if (!metadata.Has(kCountKey)) return SplitPosition{};
  ASSIGN_OR_RETURN(int64_t count, metadata.GetInt(kCountKey));
  if (count == 0) return SplitPosition{};  // written by some converters for "not split"
  if (count < 0 || count > kMaxParts) {
    return absl::InvalidArgumentError(
        absl::StrCat("key \"", kCountKey, "\": wanted 1 to ", kMaxParts, " parts, got ", count));
  }
  if (count == 1 && !metadata.Has(kIndexKey)) return SplitPosition{};
  ASSIGN_OR_RETURN(int64_t index, metadata.GetInt(kIndexKey));
  if (index < 0 || index >= count) {
    return absl::InvalidArgumentError(
        absl::StrCat("key \"", kIndexKey, "\": part ", index, " of ", count, ", counted from 0"));
  }
  return SplitPosition{static_cast<int>(index), static_cast<int>(count)};
}

absl::StatusOr<std::vector<std::string>> SplitPaths(const std::string& path,
                                                    SplitPosition position) {
  const std::string suffix = Suffix(position.index, position.count);
  if (!absl::EndsWith(path, suffix)) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", path, "' is part ", position.index + 1, " of ", position.count,
                     " of a split model, but its name does not end in \"", suffix,
                     "\", so that the other parts cannot be found"));
  }
  const std::string stem = path.substr(0, path.size() - suffix.size());
  std::vector<std::string> paths;
  for (int i = 0; i < position.count; ++i) paths.push_back(stem + Suffix(i, position.count));
  return paths;
}

absl::Status CheckSplitTensors(const Metadata& metadata, size_t num_tensors) {
  ASSIGN_OR_RETURN(int64_t wanted, metadata.GetInt(kTensorsKey));
  if (wanted < 0 || static_cast<uint64_t>(wanted) != num_tensors) {
    return absl::InvalidArgumentError(absl::StrCat("key \"", kTensorsKey, "\" says ", wanted,
                                                   " tensors, the parts have ", num_tensors));
  }
  return absl::OkStatus();
}

absl::StatusOr<ModelIdentity> IdentifyModel(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return IdentifyDirectory(path);
  ASSIGN_OR_RETURN(const FileIdentity own, IdentifyFile(path));
  const std::optional<SplitPosition> position = PositionInName(path);
  if (!position.has_value()) return ModelIdentity{{path, own}};
  ASSIGN_OR_RETURN(const std::vector<std::string> paths, SplitPaths(path, *position));
  ModelIdentity identity;
  for (const std::string& part : paths) identity.push_back(IdentifyPart(part));
  return identity;
}

namespace {

// Whether weights are there, and none of those that were loaded.
bool HasOtherWeights(const ModelIdentity& loaded, const ModelIdentity& now) {
  bool has_others = false;
  for (const IdentifiedFile& file : now) {
    const bool is_weights =
        absl::EndsWith(file.path, ".safetensors") || absl::EndsWith(file.path, ".gguf");
    if (!is_weights || file.identity == FileIdentity()) continue;
    const bool was_loaded =
        std::any_of(loaded.begin(), loaded.end(),
                    [&file](const IdentifiedFile& l) { return l.path == file.path; });
    if (was_loaded) return false;
    has_others = true;
  }
  return has_others;
}

}  // namespace

bool IsReplaced(const ModelIdentity& loaded, const ModelIdentity& now) {
  auto next = loaded.begin();  // they are in one order
  for (const IdentifiedFile& file : now) {
    const auto was = std::find_if(next, loaded.end(),
                                  [&file](const IdentifiedFile& l) { return l.path == file.path; });
    if (was == loaded.end()) continue;
    if (file.identity != FileIdentity() && file != *was) return true;
    next = was + 1;
  }
  return HasOtherWeights(loaded, now);
}

}  // namespace lm
