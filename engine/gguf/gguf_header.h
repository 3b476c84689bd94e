// GgufHeader: writes what stands in front of the tensors' bytes in a GGUF v3 file.
//
//   GgufHeader header;
//   for (const auto& [key, value] : metadata.values()) header.Add(key, value);
//   header.AddTensor("token_embd.weight", {64, 300}, DType::kF16);
//   const std::string front = header.Finish();
//   // tensor i's bytes begin at front.size() + header.offset(i), zeros fill what is between
//
// Numbers take the widths that llama.cpp wants: integers 32 bits where they fit, reals F32.
#ifndef LM_ENGINE_GGUF_GGUF_HEADER_H_
#define LM_ENGINE_GGUF_GGUF_HEADER_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "engine/gguf/metadata.h"
#include "engine/tensor/dtype.h"

namespace lm {

class GgufHeader {
 public:
  static constexpr uint64_t kAlignment = 32;

  // REQUIRES: each key once.
  void Add(std::string key, MetadataValue value);

  // REQUIRES: dims, the contiguous one first, are of whole blocks.
  void AddTensor(absl::string_view name, const std::vector<uint64_t>& dims, DType dtype);

  // The keys in alphabetical order, then the tensors as added, padded to the first one's bytes.
  std::string Finish();

  // From the end of the header; a multiple of kAlignment.
  uint64_t offset(size_t tensor) const { return offsets_[tensor]; }
  // Of all tensors.
  uint64_t data_bytes() const { return data_bytes_; }

 private:
  std::vector<std::pair<std::string, MetadataValue>> pairs_;
  std::string directory_;
  std::vector<uint64_t> offsets_;
  uint64_t data_bytes_ = 0;
};

}  // namespace lm

#endif  // LM_ENGINE_GGUF_GGUF_HEADER_H_
