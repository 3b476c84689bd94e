// A model in several files: "name-00001-of-00003.gguf" to "name-00003-of-00003.gguf". Each says in
// its metadata which part it is (split.no, from 0) of how many (split.count).
#ifndef LM_ENGINE_GGUF_SPLIT_FILES_H_
#define LM_ENGINE_GGUF_SPLIT_FILES_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/file.h"
#include "engine/gguf/metadata.h"

namespace lm {

struct SplitPosition {
  int index = 0;  // 0 <= index < count
  int count = 1;
};

// Where a part stands, by its metadata; a file without split.count is the whole model.
absl::StatusOr<SplitPosition> SplitPositionOf(const Metadata& metadata);

// The paths of all parts, in order, from the path and the position of one of them. InvalidArgument
// where the path does not end in the position.
absl::StatusOr<std::vector<std::string>> SplitPaths(const std::string& path,
                                                    SplitPosition position);

// Checks split.tensors.count of a part against the number of tensors in all of them.
absl::Status CheckSplitTensors(const Metadata& metadata, size_t num_tensors);

// Which files a model is made of: one, all parts of a split one, or what a directory has of
// weights, settings and templates. The files of a name that only looks like a part's may be
// missing; they are FileIdentity().
using ModelIdentity = std::vector<FileIdentity>;

// By the name alone, given any part; nothing is read. Fails as IdentifyFile(path) does.
absl::StatusOr<ModelIdentity> IdentifyModel(const std::string& path);

// Whether there is another file now where `loaded` was. One that is only gone is still in memory.
bool IsReplaced(const ModelIdentity& loaded, const ModelIdentity& now);

}  // namespace lm

#endif  // LM_ENGINE_GGUF_SPLIT_FILES_H_
