// Writes beyond the limit of file sizes, which are no reason to end the process.
#include "engine/base/no_file_size_signal.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/base/new_file.h"
#include "engine/base/scratch_file.h"
#include "tests/engine/base/file_size_limit.h"

namespace lm {
namespace {

using testing::HasSubstr;

constexpr rlim_t kLimit = 5000;

bool IsBlocked() {
  sigset_t blocked;
  return pthread_sigmask(SIG_BLOCK, nullptr, &blocked) == 0 && sigismember(&blocked, SIGXFSZ) == 1;
}

bool IsPending() {
  sigset_t pending;
  return sigpending(&pending) == 0 && sigismember(&pending, SIGXFSZ) == 1;
}

// At the end of a file that may not grow.
class NoFileSizeSignalTest : public testing::Test {
 protected:
  NoFileSizeSignalTest()
      : path_((std::filesystem::path(testing::TempDir()) / absl::StrCat("no_signal_", getpid()))
                  .string()) {}
  ~NoFileSizeSignalTest() override {
    for (const char* end : {"", ".part"}) std::filesystem::remove(path_ + end);
  }

  void WriteTooMuch() const {
    const int fd = open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    ASSERT_GE(fd, 0);
    errno = 0;
    EXPECT_EQ(pwrite(fd, "x", 1, kLimit), -1);
    EXPECT_EQ(errno, EFBIG);
    close(fd);
  }

  const std::string path_;
};

TEST_F(NoFileSizeSignalTest, ItIsTakenAndTheThreadIsAsBefore) {
  const FileSizeLimit limit(kLimit);
  for (int turn = 0; turn < 2; ++turn) {
    const NoFileSizeSignal no_signal;
    WriteTooMuch();
    EXPECT_TRUE(IsPending());
    errno = ENOSPC;
  }
  EXPECT_EQ(errno, ENOSPC);
  EXPECT_FALSE(IsPending());
  EXPECT_FALSE(IsBlocked());
}

TEST_F(NoFileSizeSignalTest, OneThatWaitedForTheHostStays) {
  static std::atomic<int> came{0};
  const FileSizeLimit limit(kLimit);
  signal(SIGXFSZ, [](int) { ++came; });
  sigset_t set, before;
  sigemptyset(&set);
  sigaddset(&set, SIGXFSZ);
  pthread_sigmask(SIG_BLOCK, &set, &before);
  raise(SIGXFSZ);
  {
    const NoFileSizeSignal no_signal;
    WriteTooMuch();
  }
  EXPECT_TRUE(IsBlocked());
  EXPECT_EQ(came, 0);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  EXPECT_EQ(came, 1);
}

TEST_F(NoFileSizeSignalTest, FilesThatMayNotGrowAreErrorsThatNameThem) {
  const std::string more(kLimit + 1, 'x');
  const FileSizeLimit limit(kLimit);
  const absl::Status appended = NewFile::Create(path_).value()->Append(more);
  EXPECT_THAT(std::string(appended.message()), HasSubstr(path_ + ".part': writing: File too"));
  const std::unique_ptr<ScratchFile> scratch = ScratchFile::Create().value();
  absl::Status flushed = scratch->Append(more);
  flushed.Update(scratch->Flush());
  EXPECT_THAT(std::string(flushed.message()), HasSubstr("sqlite-lm-"));
  EXPECT_THAT(std::string(flushed.message()), HasSubstr("File too large"));
}

}  // namespace
}  // namespace lm
