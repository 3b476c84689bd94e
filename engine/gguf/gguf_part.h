// One GGUF file by itself: a whole model, or one part of a split one.
#ifndef LM_ENGINE_GGUF_GGUF_PART_H_
#define LM_ENGINE_GGUF_GGUF_PART_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/file.h"
#include "engine/gguf/metadata.h"
#include "engine/gguf/tensor_directory.h"

namespace lm {

struct GgufPart {
  uint32_t version = 0;
  Metadata metadata;
  std::vector<TensorInfo> tensors;
};

// Reads and checks everything in front of the tensors' bytes. `split` goes into the TensorInfos.
// Errors name the file.
absl::StatusOr<GgufPart> ReadGgufPart(const RandomAccessFile& file, int split);

}  // namespace lm

#endif  // LM_ENGINE_GGUF_GGUF_PART_H_
