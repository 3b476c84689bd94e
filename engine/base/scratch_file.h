// ScratchFile: bytes that are too many for memory, in a file without a name, which is gone with it.
//
//   ASSIGN_OR_RETURN(std::unique_ptr<ScratchFile> file, ScratchFile::Create());
//   RETURN_IF_ERROR(file->Append(line)); ...
//   RETURN_IF_ERROR(file->Flush());
//   pread(file->fd(), ...);
#ifndef LM_ENGINE_BASE_SCRATCH_FILE_H_
#define LM_ENGINE_BASE_SCRATCH_FILE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lm {

// Not thread-safe; after Flush any thread may read. Errors name the folder and the reason.
class ScratchFile {
 public:
  // In the folder for temporary files (TMPDIR, else /tmp).
  static absl::StatusOr<std::unique_ptr<ScratchFile>> Create();
  ~ScratchFile();
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  absl::Status Append(absl::string_view bytes);
  // Has all that was appended there for who reads it.
  absl::Status Flush();

  int64_t bytes() const { return bytes_; }
  int fd() const { return fd_; }

 private:
  explicit ScratchFile(std::string path) : path_(std::move(path)) {}

  int fd_ = -1;
  std::string path_;  // what it was called
  std::string held_;  // appended, and not written yet
  int64_t bytes_ = 0;
};

}  // namespace lm

#endif  // LM_ENGINE_BASE_SCRATCH_FILE_H_
