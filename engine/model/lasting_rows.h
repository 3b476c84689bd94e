// LastingRows: rows of tensors, read from their files for as long as somebody wants them.
//
//   backend->LoadLastingMatrix(dtype, rows, cols, LastingRows(parts, ahead));
#ifndef LM_ENGINE_MODEL_LASTING_ROWS_H_
#define LM_ENGINE_MODEL_LASTING_ROWS_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "engine/base/file.h"
#include "engine/gguf/read_ahead.h"
#include "engine/gguf/tensor_directory.h"

namespace lm {

// A LastingRowReader.
class LastingRows {
 public:
  // Rows of a tensor that is stored plainly.
  struct Part {
    TensorInfo tensor;
    std::shared_ptr<const RandomAccessFile> file;
    int64_t first = 0;
    int64_t rows = 0;
  };
  // `ahead` learns of what is read.
  LastingRows(std::vector<Part> parts, std::shared_ptr<ReadAhead> ahead)
      : parts_(std::move(parts)), ahead_(std::move(ahead)) {}

  // DataLoss, naming tensor and file, where they cannot be read any more, may be others, or have
  // values that are not finite.
  absl::Status operator()(int64_t first, int64_t count, char* to) const;

 private:
  std::vector<Part> parts_;
  std::shared_ptr<ReadAhead> ahead_;
};

}  // namespace lm

#endif  // LM_ENGINE_MODEL_LASTING_ROWS_H_
