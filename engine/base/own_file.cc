#include "engine/base/own_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace lm {

absl::Status CheckOwnFile(const struct stat& info, absl::string_view path) {
  absl::string_view why;
  if (!S_ISREG(info.st_mode)) {
    why = "is no file";
  } else if (info.st_uid != geteuid() && info.st_uid != 0) {
    why = "is another user's";
  } else if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    why = "may be written by other users";
  }
  if (why.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("'", path, "' ", why));
}

absl::StatusOr<int> OpenOwnFile(const std::string& path, uint64_t* bytes) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  struct stat info;
  if (fd < 0 || fstat(fd, &info) != 0) {
    absl::Status status = absl::NotFoundError(absl::StrCat("'", path, "': ", std::strerror(errno)));
    if (fd >= 0) close(fd);
    return status;
  }
  if (absl::Status status = CheckOwnFile(info, path); !status.ok()) {
    close(fd);
    return status;
  }
  *bytes = static_cast<uint64_t>(info.st_size);
  return fd;
}

}  // namespace lm
