// Files that are being written: by several at once, by those who are killed, and what they leave.
#include "engine/base/locked_part.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "tests/engine/base/file_size_limit.h"

namespace lm {
namespace {

using testing::HasSubstr;

class LockedPartTest : public testing::Test {
 protected:
  LockedPartTest()
      : folder_(std::filesystem::path(testing::TempDir()) / absl::StrCat("locked-part-", getpid())),
        part_((folder_ / "a.part").string()),
        path_((folder_ / "a").string()) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~LockedPartTest() override { std::filesystem::remove_all(folder_); }

  static std::string ContentOf(const std::string& path) {
    std::ifstream file(path);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }

  const std::filesystem::path folder_;
  const std::string part_, path_;
};

TEST_F(LockedPartTest, TakesThePlaceOfWhatWasThere) {
  std::ofstream(path_) << "old";
  const auto part = LockedPart::Create(part_).value();
  ASSERT_TRUE(part->Append("     and").ok());
  ASSERT_TRUE(part->Append(" more").ok());
  ASSERT_TRUE(part->WriteOverBegin("head").ok());
  EXPECT_EQ(ContentOf(path_), "old");
  ASSERT_TRUE(part->Finish(path_, 0400).ok());
  EXPECT_EQ(ContentOf(path_), "head and more");
  EXPECT_FALSE(std::filesystem::exists(part_));
  struct stat info;
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, mode_t{0400});
}

TEST_F(LockedPartTest, IsItsWritersUntilHeIsDone) {
  {
    const auto part = LockedPart::Create(part_).value();
    ASSERT_TRUE(part->Append("mine").ok());
    EXPECT_TRUE(absl::IsAlreadyExists(LockedPart::Create(part_).status()));
    LockedPart::RemoveLeftover(part_);
    EXPECT_EQ(ContentOf(part_), "mine");
  }
  EXPECT_FALSE(std::filesystem::exists(part_));
}

TEST_F(LockedPartTest, WhatAKilledWriterLeavesIsNobodys) {
  for (const bool is_removed : {true, false}) {
    const pid_t writer = fork();
    if (writer == 0) {
      const auto part = LockedPart::Create(part_);
      if (!part.ok() || !(*part)->Append("half of what").ok()) _exit(1);
      raise(SIGKILL);
    }
    int status = 0;
    ASSERT_EQ(waitpid(writer, &status, 0), writer);
    ASSERT_TRUE(WIFSIGNALED(status));
    EXPECT_EQ(ContentOf(part_), "half of what");
    if (is_removed) {
      LockedPart::RemoveLeftover(part_);
      EXPECT_FALSE(std::filesystem::exists(part_));
    } else {
      const auto part = LockedPart::Create(part_).value();
      EXPECT_EQ(ContentOf(part_), "");
    }
  }
}

TEST_F(LockedPartTest, ErrorsNameTheFile) {
  EXPECT_THAT(std::string(LockedPart::Create(part_ + "/b").status().message()),
              HasSubstr(part_ + "/b': No such file"));
  const auto part = LockedPart::Create(part_).value();
  {
    const FileSizeLimit limit(0);
    for (const absl::Status& status : {part->Append("x"), part->WriteOverBegin("x")}) {
      EXPECT_EQ(status.message(), absl::StrCat("writing '", part_, "': File too large"));
    }
  }
  EXPECT_THAT(std::string(part->Finish("/no/such/folder/a", 0600).message()), HasSubstr(part_));
}

}  // namespace
}  // namespace lm
