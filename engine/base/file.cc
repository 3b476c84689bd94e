#include "engine/base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
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

// Files that must not be closed. What is open keeps its inode's number.
struct Databases {
  absl::Mutex mutex;
  std::set<std::pair<dev_t, ino_t>> left_open ABSL_GUARDED_BY(mutex);

  bool Have(const struct stat& info) {
    absl::MutexLock lock(&mutex);
    return left_open.contains({info.st_dev, info.st_ino});
  }
  void Add(const struct stat& info) {
    absl::MutexLock lock(&mutex);
    left_open.insert({info.st_dev, info.st_ino});
  }
  static Databases& OfProcess() {
    static Databases* const databases = new Databases();
    return *databases;
  }
};

// Whether the open file is an SQLite database, or locked by anybody, this process included: its log
// and its shared memory do not look like databases, and one that is new has nothing in it.
bool IsDatabase(int fd) {
  constexpr char kSign[] = "SQLite format 3";  // and a NUL
  char begin[sizeof(kSign)];
  if (pread(fd, begin, sizeof(begin), 0) == ssize_t{sizeof(begin)} &&
      std::memcmp(begin, kSign, sizeof(begin)) == 0) {
    return true;
  }
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

int64_t Nanoseconds(const timespec& time) {
  // Of any second: unsigned, it may go round.
  return static_cast<int64_t>(static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec);
}

FileIdentity IdentityOf(const struct stat& info) {
  return FileIdentity{.device = info.st_dev,
                      .inode = info.st_ino,
                      .bytes = static_cast<uint64_t>(info.st_size),
                      .modified_ns = Nanoseconds(info.st_mtim)};
}

class PosixFile final : public RandomAccessFile {
 public:
  explicit PosixFile(const std::string& path) : path_(path) {}
  ~PosixFile() override {
    if (fd_ >= 0) close(fd_);
  }

  absl::Status Open();

  uint64_t Size() const override { return identity_.bytes; }
  const std::string& path() const override { return path_; }

  absl::Status Read(uint64_t offset, absl::Span<char> out) const override {
    return ReadFully(fd_, path_, offset, out);
  }
  void WillRead(uint64_t offset, uint64_t bytes) const override {
    posix_fadvise(fd_, static_cast<off_t>(offset), static_cast<off_t>(bytes), POSIX_FADV_WILLNEED);
  }
  bool lasts() const override { return true; }
  absl::Status CheckUnchanged() const override {
    struct stat info;
    if (fstat(fd_, &info) != 0) return FileError(errno, path_);
    if (IdentityOf(info) == identity_) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat("'", path_, "' was changed while it was in use"));
  }
  FileIdentity identity() const override { return identity_; }
  int64_t changed_ns() const override { return changed_ns_; }

 private:
  const std::string path_;
  int fd_ = -1;
  FileIdentity identity_;
  int64_t changed_ns_ = 0;
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
  const auto database = [this] {
    return absl::FailedPreconditionError(
        absl::StrCat("'", path_, "' is a database, or in use by one"));
  };
  struct stat info;
  if (stat(path_.c_str(), &info) == 0 && Databases::OfProcess().Have(info)) return database();
  fd_ = open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd_ < 0 || fstat(fd_, &info) != 0) return FileError(errno, path_);
  identity_ = IdentityOf(info);
  changed_ns_ = Nanoseconds(info.st_ctim);
  RETURN_IF_ERROR(CheckRegular(info, path_));
  if (!IsDatabase(fd_)) return absl::OkStatus();
  fd_ = -1;
  Databases::OfProcess().Add(info);
  return database();
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
  return IdentityOf(info);
}

}  // namespace lm
