#include "engine/base/leased_file.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/string_view.h"
#include "gtest/gtest.h"

namespace lm {
namespace {

class LeasedFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::ofstream(path_) << text_;
    absl::StatusOr<std::shared_ptr<LeasedFile>> file = LeasedFile::Open(path_);
    if (absl::IsFailedPrecondition(file.status())) GTEST_SKIP() << file.status();
    ASSERT_TRUE(file.ok()) << file.status();
    file_ = *std::move(file);
  }
  void TearDown() override { std::filesystem::remove(path_); }

  absl::string_view bytes() const { return {file_->bytes().data(), file_->bytes().size()}; }
  // What another process gets that opens the file for writing and does not wait.
  int OpenForWriting() const {
    const int fd = open(path_.c_str(), O_WRONLY | O_TRUNC | O_NONBLOCK);
    if (fd < 0) return errno;
    close(fd);
    return 0;
  }

  const std::string text_ = std::string(100'000, 'w');
  const std::string path_ = ::testing::TempDir() + "leased_file_test." + std::to_string(getpid());
  std::shared_ptr<LeasedFile> file_;
};

TEST_F(LeasedFileTest, HasTheBytesAndTheLease) {
  EXPECT_EQ(bytes(), text_);
  EXPECT_TRUE(file_->IsHeld());
  EXPECT_TRUE(LeasedFile::Open(path_).ok());  // as many as want to read
}

TEST_F(LeasedFileTest, WhoWantsToCutItWaitsForACopy) {
  const absl::string_view before = bytes();
  EXPECT_EQ(OpenForWriting(), EWOULDBLOCK);
  EXPECT_FALSE(file_->IsHeld());
  ASSERT_TRUE(file_
                  ->TakeCopy([this](absl::Span<const char> copy) {
                    EXPECT_EQ(absl::string_view(copy.data(), copy.size()), text_);
                    return absl::OkStatus();
                  })
                  .ok());
  EXPECT_TRUE(file_->IsHeld());
  EXPECT_EQ(OpenForWriting(), 0);
  EXPECT_EQ(std::filesystem::file_size(path_), 0);
  EXPECT_EQ(before.data(), bytes().data());
  EXPECT_EQ(before, text_);
  EXPECT_TRUE(file_->IsHeld());
}

TEST_F(LeasedFileTest, WhatIsNotRightIsNotTaken) {
  EXPECT_EQ(OpenForWriting(), EWOULDBLOCK);
  const absl::Status status =
      file_->TakeCopy([](absl::Span<const char>) { return absl::DataLossError("wrong"); });
  EXPECT_EQ(status.message(), "wrong");
  EXPECT_FALSE(file_->IsHeld());
}

TEST_F(LeasedFileTest, NoLeaseOfWhatIsBeingWritten) {
  file_.reset();
  const int fd = open(path_.c_str(), O_WRONLY);
  EXPECT_TRUE(absl::IsFailedPrecondition(LeasedFile::Open(path_).status()));
  close(fd);
  EXPECT_TRUE(LeasedFile::Open(path_).ok());
  EXPECT_TRUE(absl::IsNotFound(LeasedFile::Open(path_ + ".not").status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(LeasedFile::Open(::testing::TempDir()).status()));
}

}  // namespace
}  // namespace lm
