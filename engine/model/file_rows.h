// FileRows: a matrix that stays in its file, of which rows are read when they are needed. For
// embeddings that are looked up and never multiplied, and too large for memory.
//
//   RETURN_IF_ERROR(rows.Read(tokens, values.data()));
#ifndef LM_ENGINE_MODEL_FILE_ROWS_H_
#define LM_ENGINE_MODEL_FILE_ROWS_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/base/file.h"
#include "engine/gguf/gguf_file.h"

namespace lm {

// Thread-safe.
class FileRows {
 public:
  FileRows() = default;  // of none
  FileRows(const GgufFile& gguf, const TensorInfo& info) : file_(gguf.FileOf(info)), info_(info) {}

  int64_t rows() const { return info_.rows; }
  int64_t cols() const { return info_.cols; }

  // values (rows.size(), cols()). Errors name the tensor: the file's, or values that are not
  // finite; DataLoss where the file has been changed since it was opened, which is looked at once.
  // REQUIRES: the rows are in range.
  absl::Status Read(absl::Span<const int32_t> rows, float* values) const;

 private:
  absl::Status ReadEach(absl::Span<const int32_t> rows, float* values) const;
  std::string InContext(absl::string_view message) const;

  std::shared_ptr<const RandomAccessFile> file_;
  TensorInfo info_;
};

}  // namespace lm

#endif  // LM_ENGINE_MODEL_FILE_ROWS_H_
