#include "engine/model/file_rows.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/gguf/block_format.h"

namespace lm {

absl::Status FileRows::Read(absl::Span<const int32_t> rows, float* values) const {
  const absl::Status read = ReadEach(rows, values);
  if (!file_->lasts()) return read;
  const absl::Status unchanged = file_->CheckUnchanged();
  return unchanged.ok() ? read : absl::DataLossError(InContext(unchanged.message()));
}

std::string FileRows::InContext(absl::string_view message) const {
  return absl::StrCat("tensor '", info_.name, "': ", message);
}

absl::Status FileRows::ReadEach(absl::Span<const int32_t> rows, float* values) const {
  const int64_t row_bytes = RowBytes(info_.dtype, info_.cols);
  std::vector<char> bytes(row_bytes);
  for (const int32_t row : rows) {
    absl::Status status = file_->Read(info_.offset + row * row_bytes, absl::MakeSpan(bytes));
    if (status.ok()) {
      status = CheckFinite(info_.dtype, bytes.data(), info_.cols, row * info_.cols);
    }
    if (!status.ok()) return absl::Status(status.code(), InContext(status.message()));
    DequantizeRow(info_.dtype, bytes.data(), info_.cols, values);
    values += info_.cols;
  }
  return absl::OkStatus();
}

}  // namespace lm
