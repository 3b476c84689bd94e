#include "engine/model/lasting_rows.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace lm {

absl::Status LastingRows::operator()(int64_t first, int64_t count, char* to) const {
  for (const Part& part : parts_) {
    const int64_t rows = std::clamp<int64_t>(part.rows - first, 0, count);
    if (rows > 0) {
      const absl::Span<char> out(to, rows * part.row_bytes);
      absl::Status status = part.file->Read(part.offset + first * part.row_bytes, out);
      if (status.ok()) status = part.file->CheckUnchanged();
      if (!status.ok()) {
        return absl::DataLossError(absl::StrCat("tensor '", part.tensor, "': ", status.message()));
      }
      to += out.size();
      count -= rows;
    }
    first = std::max<int64_t>(first - part.rows, 0);
  }
  return absl::OkStatus();
}

}  // namespace lm
