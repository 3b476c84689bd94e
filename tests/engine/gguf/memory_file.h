// Files that are not on a disk: bytes in memory, and a reader with faults in it.
#ifndef LM_TESTS_ENGINE_GGUF_MEMORY_FILE_H_
#define LM_TESTS_ENGINE_GGUF_MEMORY_FILE_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "engine/base/file.h"
#include "engine/gguf/gguf_file.h"

namespace lm {

// Reads that begin before `bytes` ends and reach past it fail as a file that was cut after it was
// opened does; `size`, where larger, is what Size() says.
class MemoryFile : public RandomAccessFile {
 public:
  explicit MemoryFile(std::string bytes, std::string path = "memory.gguf", uint64_t size = 0)
      : bytes_(std::move(bytes)), path_(std::move(path)), size_(std::max(size, bytes_.size())) {}

  uint64_t Size() const override { return size_; }
  const std::string& path() const override { return path_; }

  absl::Status Read(uint64_t offset, absl::Span<char> out) const override {
    if (offset > bytes_.size() || out.size() > bytes_.size() - offset) {
      return absl::OutOfRangeError(absl::StrCat("'", path_, "' ends at ", bytes_.size()));
    }
    std::copy_n(bytes_.data() + offset, out.size(), out.data());
    return absl::OkStatus();
  }

 private:
  const std::string bytes_;
  const std::string path_;
  const uint64_t size_;
};

// The same, except that read number `failing_read` (from 0) fails as a bad disk does.
class FaultyFile : public MemoryFile {
 public:
  FaultyFile(std::string bytes, int failing_read)
      : MemoryFile(std::move(bytes), "faulty.gguf"), reads_left_(failing_read) {}

  absl::Status Read(uint64_t offset, absl::Span<char> out) const override {
    if (reads_left_-- == 0) {
      return absl::UnavailableError(
          absl::StrCat("reading '", path(), "' at offset ", offset, ": Input/output error"));
    }
    return MemoryFile::Read(offset, out);
  }

 private:
  mutable int reads_left_;
};

inline absl::StatusOr<std::unique_ptr<GgufFile>> OpenGguf(std::unique_ptr<RandomAccessFile> file) {
  std::vector<std::unique_ptr<RandomAccessFile>> files;
  files.push_back(std::move(file));
  return GgufFile::Open(std::move(files));
}

inline absl::StatusOr<std::unique_ptr<GgufFile>> OpenGguf(std::string bytes) {
  return OpenGguf(std::make_unique<MemoryFile>(std::move(bytes)));
}

}  // namespace lm

#endif  // LM_TESTS_ENGINE_GGUF_MEMORY_FILE_H_
