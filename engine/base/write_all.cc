#include "engine/base/write_all.h"

#include <unistd.h>

#include <cerrno>

#include "engine/base/no_file_size_signal.h"

namespace lm {

bool WriteAll(int fd, absl::string_view* bytes) {
  const NoFileSizeSignal no_signal;
  while (!bytes->empty()) {
    const ssize_t n = write(fd, bytes->data(), bytes->size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    bytes->remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

}  // namespace lm
