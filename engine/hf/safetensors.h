// Safetensors files: a JSON header that says of each tensor its type, shape and place, and the
// bytes. A model is one of them, or several with model.safetensors.index.json beside them.
//
//   ASSIGN_OR_RETURN(Safetensors weights, Safetensors::Open("/models/llama"));
//   const StoredTensor* t = weights.Find("model.embed_tokens.weight");
//   RETURN_IF_ERROR(t->file->Read(t->offset, bytes));
//
// The files are untrusted: nothing is allocated for a length before that many bytes are there, and
// errors name the file, the tensor, what was wanted and what is there. They are read with pread,
// not mapped, for the reason that engine/base/file.h gives.
// Format: https://huggingface.co/docs/safetensors
#ifndef LM_ENGINE_HF_SAFETENSORS_H_
#define LM_ENGINE_HF_SAFETENSORS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/base/file.h"
#include "engine/base/hash_map.h"
#include "engine/base/json.h"

namespace lm {

struct StoredTensor {
  std::string name;
  std::string type;             // "BF16", "I32", ...
  std::vector<uint64_t> shape;  // the contiguous dimension last
  uint64_t offset = 0;          // from the beginning of its file
  uint64_t bytes = 0;           // those of the type times the shape
  std::shared_ptr<const RandomAccessFile> file;

  // "F16 [64, 128]"
  std::string Description() const;
};

// Reads and checks a file's header: all of the file behind it belongs to its tensors, one behind
// another.
absl::StatusOr<std::vector<StoredTensor>> ReadSafetensors(
    std::shared_ptr<const RandomAccessFile> file);

// Of a whole model. Immutable; thread-safe.
class Safetensors {
 public:
  // With checkpoints (checkpoint.h).
  static absl::StatusOr<Safetensors> Open(const std::string& folder);

  const StoredTensor* Find(absl::string_view name) const;
  const std::vector<StoredTensor>& tensors() const { return tensors_; }

 private:
  std::vector<StoredTensor> tensors_;
  HashMap<std::string, size_t> index_;
};

// How large a file of JSON may be, and of how many values: each takes some 40 bytes in memory.
struct JsonLimits {
  uint64_t bytes;
  int64_t values;
};
inline constexpr JsonLimits kSmallJson = {8 << 20, 256 << 10};

// A whole file of JSON. NotFound where there is none. With checkpoints (checkpoint.h).
absl::StatusOr<Json> ReadJsonFile(const std::string& path, const JsonLimits& limits = kSmallJson);

}  // namespace lm

#endif  // LM_ENGINE_HF_SAFETENSORS_H_
