// Reads of stored prefixes, aside.
#include "engine/cache/prefix_loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "tests/engine/base/failing_allocation.h"

namespace lm {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

class PrefixLoaderTest : public testing::Test {
 protected:
  void SetUp() override {
    path_ = (std::filesystem::path(testing::TempDir()) /
             absl::StrCat("loader-", getpid(), "-",
                          testing::UnitTest::GetInstance()->current_test_info()->name()))
                .string();
    for (size_t i = 0; i < kPieces; ++i) {
      pieces_.emplace_back(100000 + 1000 * i, static_cast<char>('a' + i));
      pieces_.back()[0] = '-';
    }
    std::vector<absl::Span<const char>> views;
    for (const std::string& piece : pieces_) views.emplace_back(piece);
    ASSERT_TRUE(WritePrefixFile(path_, {.model = "m", .owner = "o", .tokens = {1, 2}}, views).ok());
    file_ = std::make_shared<StoredFile>(StoredFile{path_, ReadPrefixHead(path_).value()});
  }
  void TearDown() override { std::filesystem::remove(path_); }

  // Reads of all pieces into `out`.
  std::vector<PrefixLoader::Read> All(std::vector<std::string>* out) const {
    std::vector<PrefixLoader::Read> reads;
    out->resize(kPieces);
    for (size_t i = 0; i < kPieces; ++i) {
      (*out)[i].resize(pieces_[i].size());
      reads.push_back({file_, i, absl::MakeSpan((*out)[i])});
    }
    return reads;
  }

  static constexpr size_t kPieces = 9;
  std::string path_;
  std::vector<std::string> pieces_;
  std::shared_ptr<const StoredFile> file_;
};

TEST_F(PrefixLoaderTest, MemoryThatEndsWhileThreadsStartIsNoEndOfTheProcess) {
  EXPECT_GT(FailEachAllocation([] {
              PrefixLoader loader(3, [] {});
              loader.Prepare(nullptr);
            }),
            0);
}

TEST_F(PrefixLoaderTest, ReadsAllPiecesAndSaysSo) {
  absl::Notification woken;
  PrefixLoader loader(3, [&woken] { woken.Notify(); });
  std::vector<std::string> out;
  loader.Begin(7, All(&out));
  woken.WaitForNotification();
  const std::vector<PrefixLoader::Done> done = loader.TakeDone();
  ASSERT_THAT(done, SizeIs(1));
  EXPECT_EQ(done[0].number, 7);
  EXPECT_TRUE(done[0].status.ok()) << done[0].status;
  EXPECT_EQ(out, pieces_);
  EXPECT_THAT(loader.TakeDone(), SizeIs(0));
}

// What others go on from is of use to them as long as they are there.
TEST_F(PrefixLoaderTest, WhatItGoesOnFromWasUsedLater) {
  const std::string folder = path_ + "-used";
  std::filesystem::create_directory(folder);
  std::vector<std::shared_ptr<const StoredFile>> used;
  for (const uint64_t number : {3, 1, 2}) {
    const std::string path = absl::StrCat(folder, "/", PrefixFileName({.low = number}));
    ASSERT_TRUE(WritePrefixFile(path, {.model = "m", .owner = "o", .tokens = {1}}, {}).ok());
    used.push_back(std::make_shared<StoredFile>(StoredFile{.path = path, .head = {}}));
  }
  absl::Notification woken;
  PrefixLoader loader(2, [&woken] { woken.Notify(); });
  std::vector<std::string> out;
  loader.Begin(1, All(&out), used);
  woken.WaitForNotification();
  std::vector<PrefixFileUse> use = ListPrefixUse(folder);
  std::sort(use.begin(), use.end(),
            [](const PrefixFileUse& a, const PrefixFileUse& b) { return a.used > b.used; });
  std::filesystem::remove_all(folder);
  ASSERT_THAT(use, SizeIs(3));
  for (size_t i = 0; i < use.size(); ++i) EXPECT_EQ(use[i].path, used[i]->path);
}

TEST_F(PrefixLoaderTest, ADamagedPieceIsAnErrorOfItsLoad) {
  {
    std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(file_->head.pieces[4].offset) + 10);
    file.write("?", 1);
  }
  absl::Notification woken;
  PrefixLoader loader(2, [&woken] { woken.Notify(); });
  std::vector<std::string> out;
  loader.Begin(1, All(&out));
  woken.WaitForNotification();
  const std::vector<PrefixLoader::Done> done = loader.TakeDone();
  ASSERT_THAT(done, SizeIs(1));
  EXPECT_THAT(std::string(done[0].status.message()), HasSubstr("has damaged blocks"));
  EXPECT_EQ(done[0].file, file_);
}

TEST_F(PrefixLoaderTest, OnceDrainedNothingIsWritten) {
  PrefixLoader loader(2, [] {});
  for (int turn = 0; turn < 20; ++turn) {
    std::vector<std::string> out;
    loader.Begin(turn, All(&out));
    loader.Drain();
    EXPECT_THAT(loader.TakeDone(), SizeIs(0));
    for (size_t i = 0; i < kPieces; ++i) EXPECT_EQ(out[i], pieces_[i]);
  }
}

TEST_F(PrefixLoaderTest, PreparesBesideLoadsAndOutlivesWhatThatThrows) {
  absl::Notification prepared, woken;
  PrefixLoader loader(2, [&woken] { woken.Notify(); });
  loader.Prepare([&prepared, &woken] {
    woken.WaitForNotification();
    prepared.Notify();
    throw std::bad_alloc();
  });
  std::vector<std::string> out;
  loader.Begin(1, All(&out));
  prepared.WaitForNotification();
  EXPECT_THAT(loader.TakeDone(), SizeIs(1));
  EXPECT_EQ(out, pieces_);
  loader.Prepare([] {});
}

}  // namespace
}  // namespace lm
