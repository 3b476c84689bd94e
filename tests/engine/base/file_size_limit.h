// Files of the process may have so many bytes, and one more is a signal that ends it, as it does
// where nobody has asked for anything else.
#ifndef LM_TESTS_ENGINE_BASE_FILE_SIZE_LIMIT_H_
#define LM_TESTS_ENGINE_BASE_FILE_SIZE_LIMIT_H_

#include <signal.h>
#include <sys/resource.h>

#include "gtest/gtest.h"

namespace lm {

class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(signal(SIGXFSZ, SIG_DFL)) {
    EXPECT_EQ(getrlimit(RLIMIT_FSIZE, &before_), 0);
    struct rlimit limit = before_;
    limit.rlim_cur = bytes;
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  }
  ~FileSizeLimit() {
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &before_), 0);
    signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  const sighandler_t handler_;
  struct rlimit before_;
};

}  // namespace lm

#endif  // LM_TESTS_ENGINE_BASE_FILE_SIZE_LIMIT_H_
