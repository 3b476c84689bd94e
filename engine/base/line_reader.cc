#include "engine/base/line_reader.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "engine/base/status_macros.h"

namespace lm {
namespace {

constexpr uint64_t kReadBytes = 1 << 18;

}  // namespace

absl::Status LineReader::Fill() {
  buffer_.erase(0, begin_);
  begin_ = 0;
  const size_t before = buffer_.size();
  const auto more = static_cast<size_t>(std::min(kReadBytes, file_->Size() - offset_));
  buffer_.resize(before + more);
  RETURN_IF_ERROR(file_->Read(offset_, absl::MakeSpan(&buffer_[before], more)));
  offset_ += more;
  return absl::OkStatus();
}

absl::StatusOr<bool> LineReader::Next(absl::string_view* line) {
  size_t looked = begin_;
  for (;;) {
    const size_t end = buffer_.find('\n', looked);
    const bool found = end != buffer_.npos;
    const size_t bytes = (found ? end : buffer_.size()) - begin_;
    if (bytes > max_line_bytes_) {
      return absl::OutOfRangeError(absl::StrCat("'", path(), "': line ", number_ + 1,
                                                " has more than ", max_line_bytes_, " bytes"));
    }
    const bool at_end = offset_ == file_->Size();
    if (found || (at_end && bytes > 0)) {
      *line = absl::string_view(buffer_).substr(begin_, bytes);
      absl::ConsumeSuffix(line, "\r");
      begin_ += bytes + (found ? 1 : 0);
      ++number_;
      return true;
    }
    if (at_end) return false;
    looked = bytes;  // where Fill leaves what has no end yet
    RETURN_IF_ERROR(Fill());
  }
}

}  // namespace lm
