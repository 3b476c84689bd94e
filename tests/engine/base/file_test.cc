#include "engine/base/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "engine/base/cancellable_file.h"
#include "engine/base/checked_math.h"

namespace lm {
namespace {

std::string WriteTemp(const std::string& contents) {
  std::string path = testing::TempDir() + "/file_test_" + std::to_string(getpid());
  std::ofstream(path, std::ios::binary) << contents;
  return path;
}

TEST(FileTest, ReadsAnyRange) {
  auto file = OpenFile(WriteTemp("0123456789"));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->Size(), 10u);
  char out[4];
  ASSERT_TRUE((*file)->Read(3, absl::MakeSpan(out)).ok());
  EXPECT_EQ(std::string(out, 4), "3456");
}

// fcntl(2): when a process closes any descriptor of a file, it loses its locks on that file.
class LockedFile {
 public:
  explicit LockedFile(const std::string& contents)
      : path_(WriteTemp(contents)), fd_(open(path_.c_str(), O_RDWR)) {
    struct flock lock = {};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    EXPECT_EQ(fcntl(fd_, F_SETLK, &lock), 0);
  }
  ~LockedFile() { close(fd_); }

  const std::string& path() const { return path_; }
  bool IsLocked() const {  // by the word of another process
    const pid_t child = fork();
    if (child == 0) {
      struct flock lock = {};
      lock.l_type = F_WRLCK;
      lock.l_whence = SEEK_SET;
      _exit(fcntl(fd_, F_SETLK, &lock) == 0 ? 1 : 0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return status == 0;
  }

 private:
  const std::string path_;
  const int fd_;
};

TEST(FileTest, ADatabaseKeepsItsLocks) {
  // A database, one that is new, and a log or shared memory.
  for (const std::string& contents : {std::string("SQLite format 3\0 and pages", 26), std::string(),
                                      std::string("\x37\x7f\x06\x82")}) {
    const LockedFile database(contents);
    ASSERT_TRUE(database.IsLocked());
    for (int i = 0; i < 2; ++i) {
      const auto file = OpenFile(database.path());
      ASSERT_TRUE(absl::IsFailedPrecondition(file.status())) << file.status();
      EXPECT_NE(file.status().message().find(database.path()), std::string::npos);
      EXPECT_TRUE(database.IsLocked());
    }
    std::remove(database.path().c_str());
  }
  // One that nobody has opened yet may be opened any moment.
  const std::string path = WriteTemp(std::string("SQLite format 3\0 and pages", 26));
  EXPECT_TRUE(absl::IsFailedPrecondition(OpenFile(path).status()));
  std::remove(path.c_str());
}

TEST(FileTest, ACancelledFileReadsNoMore) {
  const std::string contents(3 << 20, 'x');
  std::atomic<bool> cancel{false};
  auto file = MakeCancellable(OpenFile(WriteTemp(contents)).value(), cancel);
  EXPECT_EQ(file->Size(), contents.size());
  std::string out(contents.size() - 5, ' ');
  ASSERT_TRUE(file->Read(5, absl::MakeSpan(out.data(), out.size())).ok());
  EXPECT_EQ(out, contents.substr(5));
  cancel = true;
  EXPECT_TRUE(absl::IsCancelled(file->Read(0, absl::MakeSpan(out.data(), 1))));
}

TEST(FileTest, AFileThatShrinksIsAnErrorWithTheOffset) {
  std::string path = WriteTemp("0123456789");
  auto file = OpenFile(path);
  ASSERT_TRUE(file.ok());
  ASSERT_EQ(truncate(path.c_str(), 5), 0);
  char out[10];
  absl::Status status = (*file)->Read(0, absl::MakeSpan(out));
  EXPECT_TRUE(absl::IsOutOfRange(status));
  EXPECT_NE(status.message().find("offset 5"), absl::string_view::npos) << status;
}

TEST(FileTest, TellsThatItWasWrittenOrCut) {
  const std::string path = WriteTemp("0123456789");
  const auto file = OpenFile(path).value();
  ASSERT_TRUE(file->lasts());
  char out[4];
  ASSERT_TRUE(file->Read(3, absl::MakeSpan(out)).ok());
  EXPECT_TRUE(file->CheckUnchanged().ok());
  // As many bytes, at another time.
  const struct timespec earlier[2] = {{1000, 0}, {1000, 5}};
  ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), earlier, 0), 0);
  const absl::Status written = file->CheckUnchanged();
  EXPECT_TRUE(absl::IsFailedPrecondition(written)) << written;
  EXPECT_NE(written.message().find(path), absl::string_view::npos) << written;
  // Fewer, at the same.
  const auto again = OpenFile(path).value();
  EXPECT_TRUE(again->CheckUnchanged().ok());
  ASSERT_EQ(truncate(path.c_str(), 5), 0);
  ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), earlier, 0), 0);
  EXPECT_TRUE(absl::IsFailedPrecondition(again->CheckUnchanged()));
}

TEST(FileTest, RefusesWhatIsNotAFile) {
  EXPECT_TRUE(absl::IsNotFound(OpenFile("/no/such/file").status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(OpenFile("/tmp").status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(OpenFile("/dev/null").status()));
}

TEST(FileTest, IdentityFollowsTheFileNotItsName) {
  std::string path = WriteTemp("abc");
  std::string link = path + ".link";
  unlink(link.c_str());
  ASSERT_EQ(symlink(path.c_str(), link.c_str()), 0);
  EXPECT_EQ(*IdentifyFile(path), *IdentifyFile(link));
  unlink(link.c_str());
}

TEST(CheckedMathTest, ReportsOverflow) {
  EXPECT_EQ(CheckedMul(1ull << 33, 1ull << 31), std::nullopt);
  EXPECT_EQ(CheckedMul(3, 5), 15u);
  EXPECT_EQ(CheckedAdd(~0ull, 1), std::nullopt);
  EXPECT_EQ(CheckedAlignUp(33, 32), 64u);
  EXPECT_EQ(CheckedAlignUp(~0ull - 3, 32), std::nullopt);
}

}  // namespace
}  // namespace lm
