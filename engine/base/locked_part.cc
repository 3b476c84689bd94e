#include "engine/base/locked_part.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/base/write_all.h"

namespace lm {
namespace {

// Without O_NONBLOCK it might wait for somebody's lease.
constexpr int kOpenFlags = O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;

// Whether a file that was opened there still is: `info` of it.
bool IsAt(const std::string& path, int fd, struct stat* info) {
  struct stat named;
  return fstat(fd, info) == 0 && stat(path.c_str(), &named) == 0 && info->st_ino == named.st_ino &&
         info->st_dev == named.st_dev;
}

}  // namespace

absl::Status LockedPart::Error(const char* doing) const {
  return absl::UnavailableError(absl::StrCat(doing, " '", path_, "': ", std::strerror(errno)));
}

absl::StatusOr<std::unique_ptr<LockedPart>> LockedPart::Create(const std::string& path) {
  std::unique_ptr<LockedPart> part(new LockedPart(path));
  RETURN_IF_ERROR(part->Open());
  return part;
}

absl::Status LockedPart::Open() {
  fd_ = open(path_.c_str(), kOpenFlags | O_CREAT, 0600);
  if (fd_ < 0) return Error("making");
  const bool is_locked = flock(fd_, LOCK_EX | LOCK_NB) == 0;
  if (!is_locked && errno != EWOULDBLOCK) {
    is_ours_ = true;  // where there are no locks, nobody can be writing it
    return Error("locking");
  }
  struct stat info;
  if (!is_locked || !IsAt(path_, fd_, &info)) {
    return absl::AlreadyExistsError(
        absl::StrCat("'", path_, "' is being written by another process"));
  }
  is_ours_ = true;
  return info.st_size == 0 || ftruncate(fd_, 0) == 0 ? absl::OkStatus() : Error("emptying");
}

LockedPart::~LockedPart() {
  if (is_ours_) unlink(path_.c_str());
  if (fd_ >= 0) close(fd_);
}

absl::Status LockedPart::Append(absl::string_view bytes) {
  return WriteAll(fd_, &bytes) ? absl::OkStatus() : Error("writing");
}

absl::Status LockedPart::WriteOverBegin(absl::string_view bytes) {
  const bool is_written =
      lseek(fd_, 0, SEEK_SET) == 0 && WriteAll(fd_, &bytes) && lseek(fd_, 0, SEEK_END) >= 0;
  return is_written ? absl::OkStatus() : Error("writing");
}

absl::Status LockedPart::Finish(const std::string& path, mode_t mode) {
  if (fsync(fd_) != 0 || fchmod(fd_, mode) != 0) return Error("writing");
  if (std::rename(path_.c_str(), path.c_str()) != 0) return Error("naming");
  is_ours_ = false;
  close(std::exchange(fd_, -1));  // nobody gets a lease while it is open for writing
  return absl::OkStatus();
}

void LockedPart::RemoveLeftover(const std::string& path) {
  const int fd = open(path.c_str(), kOpenFlags);
  if (fd < 0) return;
  const absl::Cleanup closed = [fd] { close(fd); };
  struct stat info;
  if (flock(fd, LOCK_EX | LOCK_NB) == 0 && IsAt(path, fd, &info) && S_ISREG(info.st_mode)) {
    unlink(path.c_str());
  }
}

}  // namespace lm
