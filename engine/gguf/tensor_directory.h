// The list of a GGUF file's tensors: what each is called, its shape, and where its bytes are.
#ifndef LM_ENGINE_GGUF_TENSOR_DIRECTORY_H_
#define LM_ENGINE_GGUF_TENSOR_DIRECTORY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/gguf/byte_cursor.h"
#include "engine/gguf/stored_form.h"
#include "engine/tensor/dtype.h"

namespace lm {

// Where a tensor is and what shape it has.
struct TensorInfo {
  std::string name;
  DType dtype = DType::kF32;
  // GGUF order reversed into ours: a matrix is (rows, cols), cols the contiguous dimension; 3- and
  // 4-dimensional tensors keep the outer dimensions multiplied into rows. A vector has rows == 1.
  int64_t rows = 0;
  int64_t cols = 0;
  std::vector<uint64_t> dims;  // as in the file, contiguous dimension first; 1 to 4 of them
  uint64_t bytes = 0;
  uint64_t offset = 0;  // from the beginning of its file
  int split = 0;        // index of the file that holds it
  StoredForm form = StoredForm::kPlain;
  uint64_t stored_bytes = 0;  // in the file; `bytes` but for some forms
};

// A model of 126 layers has some 1,100 tensors.
inline constexpr uint64_t kMaxTensors = 65536;

// Reads `count` entries of the directory. Types, shapes and sizes are checked; the offsets are
// still those of the file, relative to its data part, which begins where PlaceTensors says.
absl::StatusOr<std::vector<TensorInfo>> ReadTensorDirectory(uint64_t count, int split,
                                                            ByteCursor* cursor);

// Turns the offsets into absolute ones, where the data part is the rest of the file from the first
// multiple of `alignment` at or after `directory_end`. Refuses tensors that are not aligned, lie
// outside the file or overlap. Gives where the last of them ends.
// REQUIRES: alignment is a power of two.
absl::StatusOr<uint64_t> PlaceTensors(uint64_t alignment, uint64_t directory_end,
                                      uint64_t file_bytes, std::vector<TensorInfo>* tensors);

}  // namespace lm

#endif  // LM_ENGINE_GGUF_TENSOR_DIRECTORY_H_
