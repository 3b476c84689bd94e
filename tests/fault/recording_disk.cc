#include "tests/fault/recording_disk.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace lm {
namespace {

constexpr size_t kSector = 512;

std::string PathOf(int fd) {
  char link[64], path[4096];
  snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
  const ssize_t n = readlink(link, path, sizeof(path));
  return n < 0 ? "" : std::string(path, static_cast<size_t>(n));
}

}  // namespace

RecordingDisk& RecordingDisk::Get() {
  static auto* const disk = new RecordingDisk;  // files are closed until the very end
  return *disk;
}

void RecordingDisk::Start(const std::string& folder) {
  std::lock_guard lock(mutex_);
  folder_ = folder + "/";
  changes_.clear();
  files_.clear();
  num_files_ = 0;
}

void RecordingDisk::Stop() {
  std::lock_guard lock(mutex_);
  folder_.clear();
}

int64_t RecordingDisk::changes() {
  std::lock_guard lock(mutex_);
  return static_cast<int64_t>(changes_.size());
}

bool RecordingDisk::IsWatched(const std::string& path) const {
  return !folder_.empty() && path.starts_with(folder_);
}

int RecordingDisk::FileOf(int fd) const {
  struct stat info;
  if (folder_.empty() || fstat(fd, &info) != 0) return -1;
  const auto found = files_.find({info.st_dev, info.st_ino});
  return found == files_.end() ? -1 : found->second;
}

int RecordingDisk::Open(const char* path, int flags, mode_t mode) {
  std::lock_guard lock(mutex_);
  struct stat info;
  const bool is_new = (flags & O_CREAT) != 0 && lstat(path, &info) != 0;
  const auto fd = static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, flags, mode));
  if (fd < 0 || !IsWatched(path)) return fd;
  if (is_new && fstat(fd, &info) == 0) {
    files_[{info.st_dev, info.st_ino}] = num_files_;
    changes_.push_back({.kind = Kind::kCreate, .file = num_files_++, .text = path});
  } else if ((flags & O_TRUNC) != 0 && FileOf(fd) >= 0) {
    changes_.push_back({.kind = Kind::kTruncate, .file = FileOf(fd)});
  }
  return fd;
}

ssize_t RecordingDisk::Write(int fd, const void* bytes, size_t size) {
  std::lock_guard lock(mutex_);
  const ssize_t n = syscall(SYS_write, fd, bytes, size);
  if (const int file = FileOf(fd); n > 0 && file >= 0) {
    changes_.push_back({.kind = Kind::kWrite,
                        .file = file,
                        .offset = lseek(fd, 0, SEEK_CUR) - n,
                        .text = std::string(static_cast<const char*>(bytes), n)});
  }
  return n;
}

ssize_t RecordingDisk::WriteAt(int fd, const void* bytes, size_t size, off_t offset) {
  std::lock_guard lock(mutex_);
  const ssize_t n = syscall(SYS_pwrite64, fd, bytes, size, offset);
  if (const int file = FileOf(fd); n > 0 && file >= 0) {
    changes_.push_back({.kind = Kind::kWrite,
                        .file = file,
                        .offset = offset,
                        .text = std::string(static_cast<const char*>(bytes), n)});
  }
  return n;
}

int RecordingDisk::Truncate(int fd, off_t size) {
  std::lock_guard lock(mutex_);
  const auto result = static_cast<int>(syscall(SYS_ftruncate, fd, size));
  if (const int file = FileOf(fd); result == 0 && file >= 0) {
    changes_.push_back({.kind = Kind::kTruncate, .file = file, .offset = size});
  }
  return result;
}

int RecordingDisk::Sync(int fd, bool data_only) {
  std::lock_guard lock(mutex_);
  const auto result = static_cast<int>(syscall(data_only ? SYS_fdatasync : SYS_fsync, fd));
  if (result != 0 || folder_.empty()) return result;
  if (const int file = FileOf(fd); file >= 0) {
    changes_.push_back({.kind = Kind::kSync, .file = file});
  } else if (PathOf(fd) + "/" == folder_) {
    changes_.push_back({.kind = Kind::kSyncFolder});
  }
  return result;
}

int RecordingDisk::Rename(const char* from, const char* to, unsigned flags) {
  std::lock_guard lock(mutex_);
  const auto result = static_cast<int>(syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, flags));
  if (result == 0 && IsWatched(from)) {
    changes_.push_back({.kind = Kind::kRename, .text = from, .to = to});
  }
  return result;
}

int RecordingDisk::Unlink(const char* path) {
  std::lock_guard lock(mutex_);
  const auto result = static_cast<int>(syscall(SYS_unlinkat, AT_FDCWD, path, 0));
  if (result == 0 && IsWatched(path)) changes_.push_back({.kind = Kind::kUnlink, .text = path});
  return result;
}

// All of it; or, with dice, all, nothing, or some of its sectors.
void RecordingDisk::Apply(const Change& change, std::mt19937_64* dice, std::string* content) {
  const uint64_t fate = dice == nullptr ? 0 : (*dice)() % 3;
  if (fate == 1) return;
  if (change.kind == Kind::kTruncate) return content->resize(change.offset);
  const size_t end = change.offset + change.text.size();
  if (content->size() < end) content->resize(end, '\0');
  for (size_t at = change.offset; at < end;) {
    const size_t next = std::min(end, (at / kSector + 1) * kSector);
    if (fate == 0 || (*dice)() % 2 == 0) {
      content->replace(at, next - at, change.text, at - change.offset, next - at);
    }
    at = next;
  }
}

void RecordingDisk::Recover(int64_t changes, std::mt19937_64* dice, const std::string& folder) {
  struct File {
    std::string durable = {};
    std::vector<const Change*> pending = {};
  };
  std::unique_lock lock(mutex_);
  std::vector<File> files(num_files_);
  std::map<std::string, int> names;
  std::vector<const Change*> renamed;  // and made, and removed
  const auto settle = [&](size_t count) {
    for (size_t i = 0; i < count; ++i) {
      const Change& change = *renamed[i];
      if (change.kind == Kind::kCreate) names[change.text] = change.file;
      if (change.kind == Kind::kRename) names[change.to] = names[change.text];
      if (change.kind != Kind::kCreate) names.erase(change.text);
    }
    renamed.clear();
  };
  for (int64_t i = 0; i < changes; ++i) {
    const Change& change = changes_[i];
    switch (change.kind) {
      case Kind::kWrite:
      case Kind::kTruncate:
        files[change.file].pending.push_back(&change);
        break;
      case Kind::kSync:
        for (const Change* made : files[change.file].pending) {
          Apply(*made, nullptr, &files[change.file].durable);
        }
        files[change.file].pending.clear();
        break;
      case Kind::kSyncFolder:
        settle(renamed.size());
        break;
      default:
        renamed.push_back(&change);
    }
  }
  settle((*dice)() % (renamed.size() + 1));
  lock.unlock();
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  for (const auto& [path, number] : names) {
    std::string content = files[number].durable;
    const std::vector<const Change*>& pending = files[number].pending;
    if ((*dice)() % 2 == 0) {  // it came as far as this
      const size_t done = (*dice)() % (pending.size() + 1);
      for (size_t i = 0; i < done; ++i) Apply(*pending[i], nullptr, &content);
    } else {
      for (const Change* change : pending) Apply(*change, dice, &content);
    }
    const std::string name =
        (std::filesystem::path(folder) / std::filesystem::path(path).filename()).string();
    std::ofstream(name, std::ios::binary) << content;
    chmod(name.c_str(), 0600);
  }
}

}  // namespace lm

// ---- the C library's, for everything in the process ----

using lm::RecordingDisk;

#pragma GCC visibility push(default)
extern "C" {

int open(const char* path, int flags, ...) {
  va_list args;
  va_start(args, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(args, mode_t) : 0;
  va_end(args);
  return RecordingDisk::Get().Open(path, flags, mode);
}
int open64(const char* path, int flags, ...) {
  va_list args;
  va_start(args, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(args, mode_t) : 0;
  va_end(args);
  return RecordingDisk::Get().Open(path, flags, mode);
}
// What std::ofstream opens its file with.
FILE* fopen64(const char* path, const char* mode) {
  if (mode[0] == 'w') {
    const int fd = RecordingDisk::Get().Open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    return fd < 0 ? nullptr : fdopen(fd, mode);
  }
  static const auto real =
      reinterpret_cast<FILE* (*)(const char*, const char*)>(dlsym(RTLD_NEXT, "fopen64"));
  return real(path, mode);
}
ssize_t write(int fd, const void* bytes, size_t size) {
  return RecordingDisk::Get().Write(fd, bytes, size);
}
ssize_t writev(int fd, const iovec* parts, int count) {
  std::string bytes;
  for (int i = 0; i < count; ++i) {
    bytes.append(static_cast<const char*>(parts[i].iov_base), parts[i].iov_len);
  }
  return RecordingDisk::Get().Write(fd, bytes.data(), bytes.size());
}
ssize_t pwrite(int fd, const void* bytes, size_t size, off_t offset) {
  return RecordingDisk::Get().WriteAt(fd, bytes, size, offset);
}
ssize_t pwrite64(int fd, const void* bytes, size_t size, off64_t offset) {
  return RecordingDisk::Get().WriteAt(fd, bytes, size, offset);
}
int ftruncate(int fd, off_t size) noexcept { return RecordingDisk::Get().Truncate(fd, size); }
int ftruncate64(int fd, off64_t size) noexcept { return RecordingDisk::Get().Truncate(fd, size); }
int fsync(int fd) { return RecordingDisk::Get().Sync(fd, false); }
int fdatasync(int fd) { return RecordingDisk::Get().Sync(fd, true); }
int rename(const char* from, const char* to) noexcept {
  return RecordingDisk::Get().Rename(from, to, 0);
}
int renameat2(int from_folder, const char* from, int to_folder, const char* to,
              unsigned flags) noexcept {
  if (from_folder != AT_FDCWD || to_folder != AT_FDCWD) {
    return static_cast<int>(syscall(SYS_renameat2, from_folder, from, to_folder, to, flags));
  }
  return RecordingDisk::Get().Rename(from, to, flags);
}
int unlink(const char* path) noexcept { return RecordingDisk::Get().Unlink(path); }

}  // extern "C"
#pragma GCC visibility pop
