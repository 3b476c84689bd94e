#include "engine/model/file_rows.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/gguf/block_format.h"

namespace lm {

absl::Status FileRows::Read(absl::Span<const int32_t> rows, float* values) const {
  const int64_t row_bytes = RowBytes(info_.dtype, info_.cols);
  std::vector<char> bytes(row_bytes);
  for (const int32_t row : rows) {
    absl::Status status = file_->Read(info_.offset + row * row_bytes, absl::MakeSpan(bytes));
    if (status.ok()) {
      status = CheckFinite(info_.dtype, bytes.data(), info_.cols, row * info_.cols);
    }
    if (!status.ok()) {
      return absl::Status(status.code(),
                          absl::StrCat("tensor '", info_.name, "': ", status.message()));
    }
    DequantizeRow(info_.dtype, bytes.data(), info_.cols, values);
    values += info_.cols;
  }
  return absl::OkStatus();
}

}  // namespace lm
