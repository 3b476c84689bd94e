// A model in several files: "name-00001-of-00003.gguf" to "name-00003-of-00003.gguf". Each says in
// its metadata which part it is (split.no, from 0) of how many (split.count).
#ifndef LM_ENGINE_GGUF_SPLIT_FILES_H_
#define LM_ENGINE_GGUF_SPLIT_FILES_H_

#include <string>
#include <utility>
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

// A file of a model; equal for two paths to the same contents.
struct IdentifiedFile {
  std::string path;
  FileIdentity identity;  // FileIdentity() where there is none

  friend bool operator==(const IdentifiedFile& a, const IdentifiedFile& b) {
    return a.identity == b.identity;
  }
  template <typename H>
  friend H AbslHashValue(H h, const IdentifiedFile& file) {
    return H::combine(std::move(h), file.identity);
  }
};

// Which files a model is made of: one, all parts of a split one, or of a directory its weights and
// the settings and templates that are read of it. The files of a name that only looks like a part's
// may be missing, and so may a directory's settings.
using ModelIdentity = std::vector<IdentifiedFile>;

// By the name alone, given any part; nothing is read. Fails as IdentifyFile(path) does.
absl::StatusOr<ModelIdentity> IdentifyModel(const std::string& path);

// Whether there is another file now where one of `loaded` was, or was none. What is only gone is
// still in memory; weights that lie beside those that were there are not the model's.
bool IsReplaced(const ModelIdentity& loaded, const ModelIdentity& now);

}  // namespace lm

#endif  // LM_ENGINE_GGUF_SPLIT_FILES_H_
