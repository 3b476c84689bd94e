// LastingRows: rows of tensors, read from their files for as long as somebody wants them.
//
//   backend->LoadLastingMatrix(dtype, rows, cols, LastingRows(parts));
#ifndef LM_ENGINE_MODEL_LASTING_ROWS_H_
#define LM_ENGINE_MODEL_LASTING_ROWS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "engine/base/file.h"

namespace lm {

// A LastingRowReader. Values are not looked at.
class LastingRows {
 public:
  // `rows` rows of `row_bytes` bytes, one behind the other.
  struct Part {
    std::string tensor;
    std::shared_ptr<const RandomAccessFile> file;
    uint64_t offset = 0;
    int64_t rows = 0;
    int64_t row_bytes = 0;
  };
  explicit LastingRows(std::vector<Part> parts) : parts_(std::move(parts)) {}

  // DataLoss, naming tensor and file, where they cannot be read any more, or may be others.
  absl::Status operator()(int64_t first, int64_t count, char* to) const;

 private:
  std::vector<Part> parts_;
};

}  // namespace lm

#endif  // LM_ENGINE_MODEL_LASTING_ROWS_H_
