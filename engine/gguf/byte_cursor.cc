#include "engine/gguf/byte_cursor.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace lm {
namespace {
constexpr uint64_t kBufferBytes = 64 << 10;
}  // namespace

absl::Status ByteCursor::Require(uint64_t bytes) const {
  if (bytes <= remaining()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the file is too short: ", bytes,
                                                 " bytes wanted at offset ", position_, ", ",
                                                 remaining(), " are left"));
}

absl::Status ByteCursor::ReadPastBuffer(absl::Span<char> out) {
  RETURN_IF_ERROR(Require(out.size()));
  while (!out.empty()) {
    uint64_t begin = position_ - buffer_begin_;
    if (begin == buffer_.size()) {
      if (out.size() >= kBufferBytes) {  // large enough to go past the buffer
        RETURN_IF_ERROR(file_.Read(position_, out));
        position_ += out.size();
        buffer_.clear();
        buffer_begin_ = position_;
        return absl::OkStatus();
      }
      std::vector<char> next(std::min(kBufferBytes, remaining()));
      RETURN_IF_ERROR(file_.Read(position_, absl::MakeSpan(next)));
      buffer_.swap(next);
      buffer_begin_ = position_;
      begin = 0;
    }
    size_t n = std::min<uint64_t>(out.size(), buffer_.size() - begin);
    std::memcpy(out.data(), buffer_.data() + begin, n);
    out.remove_prefix(n);
    position_ += n;
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> ByteCursor::ReadLength(uint64_t max_bytes) {
  ASSIGN_OR_RETURN(uint64_t length, ReadNumber<uint64_t>());
  if (length > remaining()) {
    return absl::InvalidArgumentError(absl::StrCat("a string of ", length, " bytes at offset ",
                                                   position_, ", where ", remaining(),
                                                   " bytes are left"));
  }
  if (length > max_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("a string of ", length, " bytes at offset ",
                                                   position_, "; at most ", max_bytes,
                                                   " are allowed"));
  }
  return length;
}

absl::StatusOr<std::string> ByteCursor::ReadString(uint64_t max_bytes) {
  ASSIGN_OR_RETURN(uint64_t length, ReadLength(max_bytes));
  std::string text(length, '\0');
  RETURN_IF_ERROR(ReadBytes(absl::MakeSpan(text.data(), text.size())));
  return text;
}

}  // namespace lm
