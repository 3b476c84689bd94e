#include "engine/base/leased_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "engine/base/file.h"
#include "engine/base/own_file.h"
#include "engine/base/status_macros.h"

namespace lm {

absl::Status LeasedFile::Error(const char* doing) const {
  return absl::FailedPreconditionError(
      absl::StrCat("'", path_, "': ", doing, ": ", std::strerror(errno)));
}

absl::StatusOr<std::shared_ptr<LeasedFile>> LeasedFile::Open(const std::string& path) {
  std::shared_ptr<LeasedFile> file(new LeasedFile(path));
  RETURN_IF_ERROR(file->Map());
  return file;
}

absl::Status LeasedFile::Map() {
  fd_ = open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
  if (fd_ < 0) {
    return errno == ENOENT ? absl::NotFoundError(absl::StrCat("'", path_, "' is not there"))
                           : Error("opening");
  }
  // Who wants the file changed is told to wait, we to look: with no signal. Between the two calls
  // it would be one that is ignored.
  if (fcntl(fd_, F_SETSIG, SIGURG) != 0 || fcntl(fd_, F_SETLEASE, F_RDLCK) != 0) {
    return Error("taking a lease");
  }
  fcntl(fd_, F_SETOWN, 0);
  struct stat info;
  if (fstat(fd_, &info) != 0) return Error("opening");
  RETURN_IF_ERROR(CheckOwnFile(info, path_));
  if (info.st_size == 0) {
    return absl::FailedPreconditionError(absl::StrCat("'", path_, "' has nothing in it"));
  }
  void* const data =
      mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ, MAP_SHARED, fd_, 0);
  if (data == MAP_FAILED) return Error("mapping");
  data_ = data;
  size_ = static_cast<size_t>(info.st_size);
  return absl::OkStatus();
}

LeasedFile::~LeasedFile() {
  if (data_ != nullptr) munmap(data_, size_);
  if (fd_ >= 0) close(fd_);
}

bool LeasedFile::HasLease() const { return fcntl(fd_, F_GETLEASE) == F_RDLCK; }

absl::Status LeasedFile::TakeCopy(absl::FunctionRef<absl::Status(absl::Span<const char>)> check) {
  if (copied_) return absl::OkStatus();
  void* const copy =
      mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (copy == MAP_FAILED) return Error("memory for a copy");
  absl::Cleanup unmap = [copy, this] { munmap(copy, size_); };
  const absl::Span<char> bytes(static_cast<char*>(copy), size_);
  RETURN_IF_ERROR(ReadFully(fd_, path_, 0, bytes));
  RETURN_IF_ERROR(check(bytes));
  if (mprotect(copy, size_, PROT_READ) != 0) return Error("protecting a copy");
  const int flags = MREMAP_MAYMOVE | MREMAP_FIXED;
  if (mremap(copy, size_, size_, flags, data_) == MAP_FAILED) return Error("placing a copy");
  std::move(unmap).Cancel();
  copied_ = true;
  fcntl(fd_, F_SETLEASE, F_UNLCK);
  return absl::OkStatus();
}

}  // namespace lm
