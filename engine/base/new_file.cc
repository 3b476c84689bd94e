#include "engine/base/new_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/write_all.h"

namespace lm {
namespace {

absl::Status ErrnoError(const std::string& path, absl::string_view what) {
  const int error = errno;
  const std::string message = absl::StrCat("'", path, "': ", what, ": ", std::strerror(error));
  switch (error) {
    case EEXIST:
      return absl::AlreadyExistsError(message);
    case ENOENT:
    case ENOTDIR:
      return absl::NotFoundError(message);
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::PermissionDeniedError(message);
    default:
      return absl::UnavailableError(message);
  }
}

absl::Status Exists(const std::string& path) {
  return absl::AlreadyExistsError(absl::StrCat("'", path, "' exists, and is not written over"));
}

absl::Status PartExists(const std::string& part) {
  return absl::AlreadyExistsError(
      absl::StrCat("'", part, "' exists, and is not written over: somebody is writing it, or one ",
                   "who was killed has left it; then delete it"));
}

bool IsThere(const std::string& path) {
  struct stat info;
  return lstat(path.c_str(), &info) == 0;
}

}  // namespace

absl::Status NewFile::CheckFree(const std::string& path) {
  if (IsThere(path)) return Exists(path);
  const std::string part = path + ".part";
  return IsThere(part) ? PartExists(part) : absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<NewFile>> NewFile::Create(const std::string& path) {
  if (IsThere(path)) return Exists(path);
  auto file = std::unique_ptr<NewFile>(new NewFile(path));  // first: it may find no memory
  const std::string& part = file->part_;
  file->fd_ = open(part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (file->fd_ < 0) return errno == EEXIST ? PartExists(part) : ErrnoError(part, "cannot be made");
  file->has_part_ = true;
  return file;
}

NewFile::~NewFile() {
  if (fd_ >= 0) close(fd_);
  if (has_part_) unlink(part_.c_str());
}

absl::Status NewFile::Append(absl::string_view bytes) {
  return WriteAll(fd_, &bytes) ? absl::OkStatus() : ErrnoError(part_, "writing");
}

absl::Status NewFile::Finish() {
  if (fsync(fd_) != 0) return ErrnoError(part_, "writing");
  const int closed = close(fd_);
  fd_ = -1;
  if (closed != 0) return ErrnoError(part_, "writing");
  int moved = renameat2(AT_FDCWD, part_.c_str(), AT_FDCWD, path_.c_str(), RENAME_NOREPLACE);
  if (moved != 0 && (errno == EINVAL || errno == ENOSYS)) {  // a file system that cannot
    if (IsThere(path_)) return Exists(path_);
    moved = rename(part_.c_str(), path_.c_str());
  }
  if (moved != 0) return errno == EEXIST ? Exists(path_) : ErrnoError(path_, "cannot be made");
  has_part_ = false;
  return absl::OkStatus();
}

}  // namespace lm
