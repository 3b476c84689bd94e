#include "engine/base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"

namespace lm {
namespace {

absl::Status FileError(int error, const std::string& path) {
  std::string message = absl::StrCat("'", path, "': ", std::strerror(error));
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return absl::NotFoundError(message);
    case EACCES:
    case EPERM:
      return absl::PermissionDeniedError(message);
    default:
      return absl::UnavailableError(message);
  }
}

class PosixFile final : public RandomAccessFile {
 public:
  explicit PosixFile(const std::string& path) : path_(path) {}
  ~PosixFile() override {
    if (fd_ >= 0) close(fd_);
  }

  absl::Status Open();

  uint64_t Size() const override { return size_; }
  const std::string& path() const override { return path_; }

  absl::Status Read(uint64_t offset, absl::Span<char> out) const override {
    return ReadFully(fd_, path_, offset, out);
  }
  void WillRead(uint64_t offset, uint64_t bytes) const override {
    posix_fadvise(fd_, static_cast<off_t>(offset), static_cast<off_t>(bytes), POSIX_FADV_WILLNEED);
  }

 private:
  const std::string path_;
  int fd_ = -1;
  uint64_t size_ = 0;
};

absl::Status CheckRegular(const struct stat& info, const std::string& path) {
  if (S_ISDIR(info.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat("'", path, "' is a directory, not a file"));
  }
  if (!S_ISREG(info.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat("'", path, "' is not a regular file"));
  }
  return absl::OkStatus();
}

absl::Status PosixFile::Open() {
  fd_ = open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat info;
  if (fd_ < 0 || fstat(fd_, &info) != 0) return FileError(errno, path_);
  size_ = static_cast<uint64_t>(info.st_size);
  return CheckRegular(info, path_);
}

}  // namespace

absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenFile(const std::string& path) {
  auto file = std::make_unique<PosixFile>(path);
  RETURN_IF_ERROR(file->Open());
  return file;
}

absl::Status ReadFully(int fd, const std::string& path, uint64_t offset, absl::Span<char> out) {
  constexpr size_t kMaxRead = 1 << 30;  // Linux reads at most 2 GiB a call
  size_t done = 0;
  while (done < out.size()) {
    ssize_t n = pread(fd, out.data() + done, std::min(out.size() - done, kMaxRead),
                      static_cast<off_t>(offset + done));
    if (n < 0) {
      if (errno == EINTR) continue;
      return absl::UnavailableError(absl::StrCat("reading '", path, "' at offset ", offset + done,
                                                 ": ", std::strerror(errno)));
    }
    if (n == 0) {
      return absl::OutOfRangeError(absl::StrCat("'", path, "' ends at offset ", offset + done,
                                                ", wanted ", out.size() - done,
                                                " more bytes (was the file cut?)"));
    }
    done += static_cast<size_t>(n);
  }
  return absl::OkStatus();
}

absl::StatusOr<FileIdentity> IdentifyFile(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) return FileError(errno, path);
  RETURN_IF_ERROR(CheckRegular(info, path));
  // Of any second: unsigned, it may go round.
  const uint64_t modified =
      static_cast<uint64_t>(info.st_mtim.tv_sec) * 1'000'000'000 + info.st_mtim.tv_nsec;
  return FileIdentity{.device = info.st_dev,
                      .inode = info.st_ino,
                      .bytes = static_cast<uint64_t>(info.st_size),
                      .modified_ns = static_cast<int64_t>(modified)};
}

}  // namespace lm
