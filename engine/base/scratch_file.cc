#include "engine/base/scratch_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "engine/base/write_all.h"

namespace lm {
namespace {

constexpr size_t kMostHeld = 1 << 18;

// A full disk does not get better by another try.
absl::Status ScratchError(absl::string_view doing, const std::string& path) {
  return absl::ResourceExhaustedError(absl::StrCat(doing, " '", path, "': ", std::strerror(errno)));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ScratchFile>> ScratchFile::Create() {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::temp_directory_path(error);
  // First: it may find no memory.
  auto file = std::unique_ptr<ScratchFile>(
      new ScratchFile((error ? "/tmp" : folder).string() + "/sqlite-lm-XXXXXX"));
  file->fd_ = mkostemp(file->path_.data(), O_CLOEXEC);
  if (file->fd_ < 0) return ScratchError("making", file->path_);
  unlink(file->path_.c_str());
  return file;
}

ScratchFile::~ScratchFile() {
  if (fd_ >= 0) close(fd_);
}

absl::Status ScratchFile::Append(absl::string_view bytes) {
  held_.append(bytes.data(), bytes.size());
  bytes_ += static_cast<int64_t>(bytes.size());
  return held_.size() < kMostHeld ? absl::OkStatus() : Flush();
}

absl::Status ScratchFile::Flush() {
  absl::string_view left = held_;
  if (!WriteAll(fd_, &left)) return ScratchError("writing", path_);
  held_.clear();
  return absl::OkStatus();
}

}  // namespace lm
