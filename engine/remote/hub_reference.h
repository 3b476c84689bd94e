// What a model on the hub is called: hf:owner/name, and behind it @revision and :quantisation or
// :file.gguf, each of which may be absent.
//
//   hf:Qwen/Qwen3-0.6B-GGUF:Q8_0     hf:Qwen/Qwen3-0.6B-GGUF@main:Qwen3-0.6B-Q8_0.gguf
#ifndef LM_ENGINE_REMOTE_HUB_REFERENCE_H_
#define LM_ENGINE_REMOTE_HUB_REFERENCE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lm {

struct HubReference {
  std::string text = {};        // all of it
  std::string repository = {};  // owner/name
  std::string revision = "main";
  std::string variant = {};  // a quantisation or a file; empty: the recommended one
};

bool IsHubReference(absl::string_view path);

// InvalidArgument for what is none.
absl::StatusOr<HubReference> ParseHubReference(absl::string_view path);

// Of a repository's files the model that is meant: one, or all parts of a split one, in order. A
// quantisation is a whole word of a file's path, in upper or lower case; where none is named, the
// recommended one is Q4_K_M, else Q8_0, else the only one. NotFound or InvalidArgument, with the
// names that there are, where none or several fit.
absl::StatusOr<std::vector<std::string>> ChooseFiles(const HubReference& reference,
                                                     const std::vector<std::string>& files);

// Whether a path within a repository leads nowhere else.
bool IsPlainPath(absl::string_view path);

// Where downloads are kept: $LM_CACHE, else $XDG_CACHE_HOME/sqlite-lm, else ~/.cache/sqlite-lm.
// FailedPrecondition where none of these variables is set.
absl::StatusOr<std::string> CacheFolder();

// The folder of a repository's files, below CacheFolder.
absl::StatusOr<std::string> HubFolder(const HubReference& reference);

// The model's files where they are all in HubFolder, whoever put them there; empty where they are
// not.
absl::StatusOr<std::vector<std::string>> FindDownloaded(const HubReference& reference);

}  // namespace lm

#endif  // LM_ENGINE_REMOTE_HUB_REFERENCE_H_
