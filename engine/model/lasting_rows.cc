#include "engine/model/lasting_rows.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/gguf/block_format.h"

namespace lm {

absl::Status LastingRows::operator()(int64_t first, int64_t count, char* to) const {
  for (const Part& part : parts_) {
    const int64_t rows = std::clamp<int64_t>(part.rows - first, 0, count);
    if (rows > 0) {
      const TensorInfo& tensor = part.tensor;
      const int64_t row_bytes = RowBytes(tensor.dtype, tensor.cols);
      const int64_t at = part.first + first;
      const absl::Span<char> out(to, rows * row_bytes);
      ahead_->Reading(tensor.split, tensor.offset + at * row_bytes);
      absl::Status status = part.file->Read(tensor.offset + at * row_bytes, out);
      if (status.ok()) status = part.file->CheckUnchanged();
      if (!status.ok()) {
        return absl::DataLossError(absl::StrCat("tensor '", tensor.name, "': ", status.message()));
      }
      status = CheckFinite(tensor.dtype, to, rows * tensor.cols, at * tensor.cols);
      if (!status.ok()) {
        return absl::DataLossError(absl::StrCat("'", part.file->path(), "': tensor '", tensor.name,
                                                "': ", status.message()));
      }
      to += out.size();
      count -= rows;
    }
    first = std::max<int64_t>(first - part.rows, 0);
  }
  return absl::OkStatus();
}

}  // namespace lm
