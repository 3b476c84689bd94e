#include "engine/gguf/content_digest.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/checkpoint.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/gguf/memory_file.h"

namespace lm {
namespace {

constexpr uint64_t kPassPiece = 4 << 20;  // of a pass

// Counts the bytes that are read of it, and may change.
class WatchedFile : public MemoryFile {
 public:
  using MemoryFile::MemoryFile;

  absl::Status Read(uint64_t offset, absl::Span<char> out) const override {
    read += out.size();
    if (gate != nullptr) gate();
    return MemoryFile::Read(offset, out);
  }
  bool lasts() const override { return true; }
  absl::Status CheckUnchanged() const override {
    if (!changed) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat("'", path(), "' was changed"));
  }

  mutable std::atomic<uint64_t> read{0};
  std::function<void()> gate;  // called with every read
  bool changed = false;
};

std::string SomeBytes(uint64_t count) {
  std::string bytes(count, '\0');
  for (uint64_t i = 0; i < count; ++i) bytes[i] = static_cast<char>(i * 2654435761u >> 13);
  return bytes;
}

// Files of memos, of prefixes and of jobs have it: another one would be another model to them.
TEST(ContentDigestTest, IsTheSameForEver) {
  const auto first = std::make_shared<MemoryFile>(SomeBytes(2 * kPassPiece + 5));
  const auto second = std::make_shared<MemoryFile>(SomeBytes(100));
  for (const int threads : {1, 3}) {
    EXPECT_EQ(DigestFiles({first, second}, threads).value(), "3593468017e8f413c9d5d439bb50a30a");
  }
}

TEST(ContentDigestTest, IsMadeWhenItIsAskedForAndOnce) {
  const auto file = std::make_shared<WatchedFile>(SomeBytes(3 * kPassPiece));
  const ContentDigest digest({file}, 2);
  EXPECT_EQ(digest.known(), std::nullopt);
  EXPECT_EQ(file->read, 0u);
  const std::string made = digest.Get().value();
  EXPECT_EQ(made,
            DigestFiles({std::make_shared<MemoryFile>(SomeBytes(3 * kPassPiece))}, 1).value());
  EXPECT_EQ(digest.known(), made);
  EXPECT_EQ(digest.Get().value(), made);
  EXPECT_EQ(file->read, 3 * kPassPiece);
}

TEST(ContentDigestTest, WhoAsksMeanwhileWaitsForIt) {
  const auto file = std::make_shared<WatchedFile>(SomeBytes(3 * kPassPiece));
  const ContentDigest digest({file}, 1);
  std::atomic<int> asking{0};
  file->gate = [&asking] {
    while (asking < 4) std::this_thread::yield();
  };
  std::vector<std::string> made(4);
  std::vector<std::thread> threads;
  for (std::string& one : made) {
    threads.emplace_back([&digest, &asking, &one] {
      ++asking;
      one = digest.Get().value();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(made, testing::Each(*digest.known()));
  EXPECT_EQ(file->read, 3 * kPassPiece);
}

// Be it that he makes it, or waits for who does.
TEST(ContentDigestTest, WhoIsInterruptedNeedNotWait) {
  const auto file = std::make_shared<WatchedFile>(SomeBytes(30 * kPassPiece));
  const ContentDigest digest({file}, 1);
  std::atomic<bool> begun{false}, waited{false};
  std::thread waiting([&] {
    while (!begun) std::this_thread::yield();
    const CheckpointScope scope([] { return true; });
    EXPECT_TRUE(absl::IsCancelled(digest.Get().status()));
    waited = true;
  });
  {
    file->gate = [&] {
      begun = true;
      while (!waited) std::this_thread::yield();
    };
    const CheckpointScope scope([&begun] { return begun.load(); });
    EXPECT_TRUE(absl::IsCancelled(digest.Get().status()));
  }
  waiting.join();
  EXPECT_LT(file->read, 10 * kPassPiece);
  EXPECT_EQ(digest.known(), std::nullopt);
  EXPECT_TRUE(digest.Get().ok());
}

TEST(ContentDigestTest, AFileThatHasChangedHasNone) {
  const auto file = std::make_shared<WatchedFile>(SomeBytes(100), "m.gguf");
  const ContentDigest digest({file}, 1);
  file->changed = true;
  EXPECT_EQ(digest.Get().status(), absl::DataLossError("'m.gguf' was changed"));
  EXPECT_EQ(digest.known(), std::nullopt);
}

TEST(ContentDigestTest, AFileThatWasCutHasNone) {
  const ContentDigest digest({std::make_shared<MemoryFile>(SomeBytes(100), "m.gguf", 200)}, 1);
  EXPECT_EQ(digest.Get().status(), absl::DataLossError("'m.gguf' ends at 100"));
}

}  // namespace
}  // namespace lm
