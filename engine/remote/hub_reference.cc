#include "engine/remote/hub_reference.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "engine/base/list_folder.h"
#include "engine/base/status_macros.h"

namespace lm {
namespace {

constexpr absl::string_view kScheme = "hf:";
constexpr absl::string_view kEnding = ".gguf";
constexpr absl::string_view kRecommended[] = {"Q4_K_M", "Q8_0"};

bool IsWordCharacter(char c) { return absl::ascii_isalnum(c) || c == '_'; }

// Whether `word` stands in `text` with no letter, digit or underscore on either side.
bool HasWord(absl::string_view text, absl::string_view word) {
  for (size_t at = 0; (at = text.find(word, at)) != text.npos; ++at) {
    const size_t end = at + word.size();
    if ((at == 0 || !IsWordCharacter(text[at - 1])) &&
        (end == text.size() || !IsWordCharacter(text[end]))) {
      return true;
    }
  }
  return false;
}

// A name without its ending and, where it is a part of a split model, its position, which is
// *index of *count.
std::string ModelOf(absl::string_view file, int* index, int* count) {
  absl::string_view name = file.substr(0, file.size() - kEnding.size());
  *index = *count = 1;
  constexpr size_t kDigits = 5, kPosition = 2 * kDigits + 5;  // -00001-of-00003
  if (name.size() <= kPosition) return std::string(name);
  const absl::string_view position = name.substr(name.size() - kPosition);
  const bool split = position[0] == '-' && position.substr(1 + kDigits, 4) == "-of-" &&
                     absl::SimpleAtoi(position.substr(1, kDigits), index) &&
                     absl::SimpleAtoi(position.substr(kPosition - kDigits), count);
  if (!split) *index = *count = 1;
  return std::string(split ? name.substr(0, name.size() - kPosition) : name);
}

// No model of its own: a projector of images, a matrix of importance, or what guesses for another
// model of the repository.
bool IsCompanion(absl::string_view file) {
  constexpr absl::string_view kGuess[] = {"mtp-", "eagle3-", "dflash-", "dspark-"};
  return HasWord(file, "mmproj") || HasWord(file, "imatrix") ||
         std::any_of(std::begin(kGuess), std::end(kGuess),
                     [file](absl::string_view begin) { return absl::StartsWith(file, begin); });
}

// The models among a repository's files, by name: their parts by position.
struct Candidate {
  int count = 1;
  std::map<int, std::string> parts;
};
std::map<std::string, Candidate> Candidates(const std::vector<std::string>& files) {
  std::map<std::string, Candidate> candidates;
  for (const std::string& file : files) {
    const std::string base = absl::AsciiStrToLower(file.substr(file.rfind('/') + 1));
    if (!absl::EndsWith(base, kEnding) || IsCompanion(base)) continue;
    int index = 0, count = 0;
    const std::string model = ModelOf(file, &index, &count);
    Candidate& candidate = candidates[model];
    candidate.count = count;
    candidate.parts.emplace(index, file);
  }
  std::erase_if(candidates, [](const auto& entry) {
    return static_cast<int>(entry.second.parts.size()) != entry.second.count;
  });
  return candidates;
}

bool Fits(const std::string& model, const Candidate& candidate, absl::string_view variant) {
  const std::string wanted = absl::AsciiStrToLower(variant);
  if (!absl::EndsWith(wanted, kEnding)) return HasWord(absl::AsciiStrToLower(model), wanted);
  return std::any_of(candidate.parts.begin(), candidate.parts.end(), [&](const auto& part) {
    const std::string path = absl::AsciiStrToLower(part.second);
    return path == wanted || absl::EndsWith(path, absl::StrCat("/", wanted));
  });
}

bool IsPlainName(absl::string_view name) {
  return !name.empty() && name[0] != '.' && std::all_of(name.begin(), name.end(), [](char c) {
    return IsWordCharacter(c) || c == '-' || c == '.';
  });
}

}  // namespace

bool IsPlainPath(absl::string_view path) {
  const std::vector<absl::string_view> names = absl::StrSplit(path, '/');
  return std::all_of(names.begin(), names.end(), IsPlainName);
}

bool IsHubReference(absl::string_view path) { return absl::StartsWith(path, kScheme); }

absl::StatusOr<HubReference> ParseHubReference(absl::string_view path) {
  HubReference reference{.text = std::string(path)};
  absl::string_view rest = path;
  absl::ConsumePrefix(&rest, kScheme);
  const size_t colon = rest.find(':');
  if (colon != rest.npos) {
    reference.variant = std::string(rest.substr(colon + 1));
    rest = rest.substr(0, colon);
  }
  const size_t at = rest.find('@');
  if (at != rest.npos) {
    reference.revision = std::string(rest.substr(at + 1));
    rest = rest.substr(0, at);
  }
  reference.repository = std::string(rest);
  const std::vector<absl::string_view> names = absl::StrSplit(rest, '/');
  const bool good = names.size() == 2 && IsPlainName(names[0]) && IsPlainName(names[1]) &&
                    IsPlainName(reference.revision) &&
                    (reference.variant.empty() || IsPlainPath(reference.variant));
  if (good) return reference;
  return absl::InvalidArgumentError(absl::StrCat(
      "path: '", path, "' must be hf:owner/name, hf:owner/name:Q8_0 or hf:owner/name:file.gguf"));
}

absl::StatusOr<std::vector<std::string>> ChooseFiles(const HubReference& reference,
                                                     const std::vector<std::string>& files) {
  const std::map<std::string, Candidate> candidates = Candidates(files);
  std::vector<std::string> names;
  for (const auto& [model, candidate] : candidates) names.push_back(model);
  const std::string known = absl::StrCat("; it has ", absl::StrJoin(names, ", "));
  if (names.empty()) {
    return absl::NotFoundError(absl::StrCat(reference.repository, " has no GGUF files"));
  }
  auto fitting = [&](absl::string_view variant) {
    std::vector<const Candidate*> fit;
    for (const auto& [model, candidate] : candidates) {
      if (variant.empty() || Fits(model, candidate, variant)) fit.push_back(&candidate);
    }
    return fit;
  };
  std::vector<const Candidate*> fit = fitting(reference.variant);
  if (reference.variant.empty() && fit.size() > 1) {
    for (absl::string_view recommended : kRecommended) {
      const std::vector<const Candidate*> some = fitting(recommended);
      if (some.empty()) continue;
      fit = some;  // of several one is to be named
      break;
    }
  }
  if (fit.empty()) {
    return absl::NotFoundError(
        absl::StrCat(reference.repository, " has no '", reference.variant, "'", known));
  }
  if (fit.size() > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("several files of ", reference.repository,
                     reference.variant.empty() ? std::string(" could be meant")
                                               : absl::StrCat(" fit '", reference.variant, "'"),
                     ": name one, as in hf:", reference.repository, ":file.gguf", known));
  }
  std::vector<std::string> parts;
  for (const auto& [index, part] : fit.front()->parts) parts.push_back(part);
  return parts;
}

absl::StatusOr<std::string> CacheFolder() {
  auto set = [](const char* name) {
    const char* value = std::getenv(name);
    return value != nullptr && *value != '\0' ? value : nullptr;
  };
  if (const char* own = set("LM_CACHE")) return std::string(own);
  if (const char* cache = set("XDG_CACHE_HOME")) return absl::StrCat(cache, "/sqlite-lm");
  if (const char* home = set("HOME")) return absl::StrCat(home, "/.cache/sqlite-lm");
  return absl::FailedPreconditionError(
      "there is no folder for downloads: set LM_CACHE, XDG_CACHE_HOME or HOME");
}

absl::StatusOr<std::string> HubFolder(const HubReference& reference) {
  ASSIGN_OR_RETURN(const std::string cache, CacheFolder());
  const std::string revision =
      reference.revision == "main" ? "" : absl::StrCat("@", reference.revision);
  return absl::StrCat(cache, "/hf/", reference.repository, revision);
}

namespace {

// The files of a folder and those within it, without the first `cut` bytes of their paths.
void AddFiles(const std::string& folder, size_t cut, std::vector<std::string>* files) {
  for (const std::string& path : ListFolder(folder).value_or(std::vector<std::string>())) {
    struct stat info;
    if (lstat(path.c_str(), &info) != 0) continue;
    if (S_ISDIR(info.st_mode)) AddFiles(path, cut, files);
    if (stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode)) files->push_back(path.substr(cut));
  }
}

}  // namespace

absl::StatusOr<std::vector<std::string>> FindDownloaded(const HubReference& reference) {
  ASSIGN_OR_RETURN(const std::string folder, HubFolder(reference));
  std::vector<std::string> files;
  AddFiles(folder, folder.size() + 1, &files);
  absl::StatusOr<std::vector<std::string>> chosen = ChooseFiles(reference, files);
  if (!chosen.ok()) return std::vector<std::string>();
  for (std::string& file : *chosen) file = absl::StrCat(folder, "/", file);
  return chosen;
}

}  // namespace lm
