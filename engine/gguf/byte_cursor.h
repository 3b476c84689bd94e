// Reads the front of a file from left to right, in little-endian numbers and counted strings.
//
//   ByteCursor cursor(*file);
//   ASSIGN_OR_RETURN(uint32_t version, cursor.ReadNumber<uint32_t>());
//
// Only what is asked for (and at most 64 KiB more) is ever read, and no read is tried that the
// file's size says cannot succeed.
#ifndef LM_ENGINE_GGUF_BYTE_CURSOR_H_
#define LM_ENGINE_GGUF_BYTE_CURSOR_H_

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/base/file.h"
#include "engine/base/status_macros.h"

namespace lm {

class ByteCursor {
 public:
  // `file` must outlive the cursor.
  explicit ByteCursor(const RandomAccessFile& file) : file_(file), size_(file.Size()) {}

  // The offset of the next byte. Invariant: position() <= the file's size.
  uint64_t position() const { return position_; }
  uint64_t remaining() const { return size_ - position_; }

  // InvalidArgument, with the offset and both numbers, where fewer than `bytes` are left.
  absl::Status Require(uint64_t bytes) const;

  // Fills `out`. Errors are Require's and the file's.
  absl::Status ReadBytes(absl::Span<char> out) {
    const uint64_t begin = position_ - buffer_begin_;
    if (out.size() > buffer_.size() - begin) return ReadPastBuffer(out);
    std::memcpy(out.data(), buffer_.data() + begin, out.size());
    position_ += out.size();
    return absl::OkStatus();
  }

  template <typename T>
  absl::StatusOr<T> ReadNumber() {
    static_assert(std::is_arithmetic_v<T> && std::endian::native == std::endian::little);
    T value;
    RETURN_IF_ERROR(ReadBytes(absl::MakeSpan(reinterpret_cast<char*>(&value), sizeof(value))));
    return value;
  }

  // A string's length (64 bits), known to be at most `max_bytes` and to be followed by as many.
  absl::StatusOr<uint64_t> ReadLength(uint64_t max_bytes);

  // The length, then the bytes.
  absl::StatusOr<std::string> ReadString(uint64_t max_bytes);

 private:
  absl::Status ReadPastBuffer(absl::Span<char> out);

  const RandomAccessFile& file_;
  const uint64_t size_;
  uint64_t position_ = 0;
  std::vector<char> buffer_;   // a copy of the file's bytes from buffer_begin_ on
  uint64_t buffer_begin_ = 0;  // buffer_begin_ <= position_ <= buffer_begin_ + buffer_.size()
};

}  // namespace lm

#endif  // LM_ENGINE_GGUF_BYTE_CURSOR_H_
