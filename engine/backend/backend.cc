#include "engine/backend/backend.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "engine/backend/check_arguments.h"
#include "engine/base/status_macros.h"

namespace lm {

absl::StatusOr<std::unique_ptr<WeightMatrix>> Backend::LoadMatrix(DType dtype, int64_t rows,
                                                                  int64_t cols,
                                                                  const Buffer& blocks) {
  RETURN_IF_ERROR(CheckLoadMatrix(dtype, rows, cols));
  const int64_t row_bytes = RowBytes(dtype, cols);
  if (blocks.bytes() != static_cast<size_t>(rows * row_bytes)) {
    return absl::InvalidArgumentError(absl::StrCat("LoadMatrix: a ", Traits(dtype).name, " (", rows,
                                                   ", ", cols, ") has ", rows * row_bytes,
                                                   " bytes, got ", blocks.bytes()));
  }
  return LoadMatrix(dtype, rows, cols, [&](int64_t first, int64_t count, char* to) {
    std::memcpy(to, blocks.chars().data() + first * row_bytes, count * row_bytes);
    return absl::OkStatus();
  });
}

}  // namespace lm
