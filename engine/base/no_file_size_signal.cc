#include "engine/base/no_file_size_signal.h"

#include <time.h>

#include <cerrno>

namespace lm {
namespace {

sigset_t FileSizeSignal() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGXFSZ);
  return set;
}

}  // namespace

NoFileSizeSignal::NoFileSizeSignal() {
  const sigset_t set = FileSizeSignal();
  is_blocked_ = pthread_sigmask(SIG_BLOCK, &set, &before_) == 0;
  sigset_t pending;
  was_pending_ = sigpending(&pending) == 0 && sigismember(&pending, SIGXFSZ) == 1;
}

NoFileSizeSignal::~NoFileSizeSignal() {
  if (!is_blocked_) return;
  const int error = errno;
  // The kernel sends it to the thread that writes, so that it is nobody else's.
  const sigset_t set = FileSizeSignal();
  constexpr timespec kNow = {};
  while (!was_pending_ && sigtimedwait(&set, nullptr, &kNow) < 0 && errno == EINTR) {
  }
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  errno = error;
}

}  // namespace lm
