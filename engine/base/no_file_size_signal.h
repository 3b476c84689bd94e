// NoFileSizeSignal: a write beyond the limit of file sizes (RLIMIT_FSIZE, ulimit -f) is an error of
// that write and no SIGXFSZ, which would end the process that we are guests of.
//
//   const NoFileSizeSignal no_signal;
//   if (write(fd, data, size) < 0) ...  // EFBIG
#ifndef LM_ENGINE_BASE_NO_FILE_SIZE_SIGNAL_H_
#define LM_ENGINE_BASE_NO_FILE_SIZE_SIGNAL_H_

#include <signal.h>

namespace lm {

// Of this thread, as long as it lives. A signal that somebody else's write has sent stays.
class NoFileSizeSignal {
 public:
  NoFileSizeSignal();
  // Leaves errno as it is.
  ~NoFileSizeSignal();
  NoFileSizeSignal(const NoFileSizeSignal&) = delete;
  NoFileSizeSignal& operator=(const NoFileSizeSignal&) = delete;

 private:
  sigset_t before_;
  bool is_blocked_ = false;
  bool was_pending_ = false;
};

}  // namespace lm

#endif  // LM_ENGINE_BASE_NO_FILE_SIZE_SIGNAL_H_
