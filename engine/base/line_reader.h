// LineReader: the lines of a file that may have any number of them, one at a time.
//
//   LineReader lines(std::move(file), /*max_line_bytes=*/1 << 20);
//   for (absl::string_view line;;) {
//     ASSIGN_OR_RETURN(const bool more, lines.Next(&line));
//     if (!more) break;
//   }
#ifndef LM_ENGINE_BASE_LINE_READER_H_
#define LM_ENGINE_BASE_LINE_READER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/base/file.h"

namespace lm {

// Not thread-safe.
class LineReader {
 public:
  LineReader(std::unique_ptr<RandomAccessFile> file, size_t max_line_bytes)
      : file_(std::move(file)), max_line_bytes_(max_line_bytes) {}

  // The next line without its end ("\n" or "\r\n"), until the next call; false at the end of the
  // file, whose last line need not end. OutOfRange, with its number, for a line that is too long;
  // RandomAccessFile::Read's errors.
  absl::StatusOr<bool> Next(absl::string_view* line);
  // Of the line that Next gave last, from 1 on.
  int64_t number() const { return number_; }
  const std::string& path() const { return file_->path(); }

 private:
  absl::Status Fill();

  const std::unique_ptr<RandomAccessFile> file_;
  const size_t max_line_bytes_;
  std::string buffer_;
  size_t begin_ = 0;     // [begin_, buffer_.size()) has not been handed out
  uint64_t offset_ = 0;  // in the file, of the buffer's end
  int64_t number_ = 0;
};

}  // namespace lm

#endif  // LM_ENGINE_BASE_LINE_READER_H_
