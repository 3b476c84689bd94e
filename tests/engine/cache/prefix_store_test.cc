// The files of a store, and what becomes of them: cut, damaged, of others, full disks, two
// processes and writers that are killed.
#include "engine/cache/prefix_store.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>
#include <thread>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "engine/base/checkpoint.h"
#include "engine/base/locked_part.h"
#include "engine/base/random.h"
#include "tests/engine/base/file_size_limit.h"

namespace lm {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsNull;
using testing::NotNull;
using PromptTokens = std::vector<int32_t>;

constexpr int64_t kBlockTokens = 32, kBlockBytes = 1000;

// Bytes that tell for which prefix they were computed.
std::vector<char> BlocksOf(const PromptTokens& tokens, int64_t begin,
                           const std::string& model = "m") {
  std::vector<char> data;
  uint64_t state = model.size();
  for (int64_t i = 0; i < static_cast<int64_t>(tokens.size()); ++i) {
    state = RandomBits(state, tokens[i]);
    const bool ends =
        i % kBlockTokens == kBlockTokens - 1 || i + 1 == static_cast<int64_t>(tokens.size());
    if (!ends || i < begin) continue;
    for (int64_t b = 0; b < kBlockBytes; ++b)
      data.push_back(static_cast<char>(RandomBits(state, b)));
  }
  return data;
}

PromptTokens Count(int64_t count, int32_t first = 5) {
  PromptTokens tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

PromptTokens Join(PromptTokens a, const PromptTokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

class PrefixStoreTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = (std::filesystem::path(testing::TempDir()) /
               absl::StrCat("prefixes-", getpid(), "-",
                            testing::UnitTest::GetInstance()->current_test_info()->name()))
                  .string();
    std::filesystem::remove_all(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<PrefixStore> Open(const std::string& model = "m",
                                    int64_t max_bytes = int64_t{1} << 30) {
    return std::make_unique<PrefixStore>(PrefixStoreOptions{.folder = folder_,
                                                            .model = model,
                                                            .classes = {{0, kBlockBytes}},
                                                            .block_tokens = kBlockTokens,
                                                            .max_bytes = max_bytes});
  }

  // Has the store write a prefix, as the engine does.
  static bool Store(PrefixStore& store, const PromptTokens& tokens,
                    const std::string& salt = "file:a", const std::string& model = "m") {
    const PrefixKey key = PrefixStore::KeyOf(salt);
    const std::optional<int64_t> begin = store.Wants(key, tokens);
    if (!begin) return false;
    store.Write(key, tokens, *begin, BlocksOf(tokens, *begin, model));
    store.Flush();
    return true;
  }

  // That what is given, if anything is, is what was computed of these tokens.
  static int64_t Given(PrefixStore& store, const PromptTokens& prompt,
                       const std::string& salt = "file:a") {
    store.Look();
    const std::shared_ptr<const StoredPrefix> stored = store.Find(PrefixStore::KeyOf(salt), prompt);
    if (stored == nullptr) return 0;
    const PromptTokens known(prompt.begin(), prompt.begin() + stored->tokens);
    EXPECT_LT(stored->tokens, static_cast<int64_t>(prompt.size()));
    std::vector<char> data(BlocksOf(known, 0).size());
    EXPECT_EQ(static_cast<int64_t>(stored->parts.size() * kBlockBytes),
              static_cast<int64_t>(data.size()));
    for (const StoredPrefix::Part& part : stored->parts) {
      const absl::Status status =
          ReadPrefixPiece(part.file->path, part.file->head.pieces[part.piece],
                          absl::MakeSpan(data).subspan(part.index * kBlockBytes, kBlockBytes));
      if (status.ok()) continue;
      store.Refuse(part.file, status);
      return 0;
    }
    EXPECT_EQ(data, BlocksOf(known, 0));
    return stored->tokens;
  }

  std::vector<std::string> Files() const {
    std::vector<std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      files.push_back(entry.path().string());
    }
    return files;
  }

  std::string folder_;
};

TEST_F(PrefixStoreTest, AnotherProcessStartsWithWhatOneHasStored) {
  const PromptTokens prefix = Count(96);
  EXPECT_TRUE(Store(*Open(), prefix));
  auto store = Open();
  EXPECT_EQ(Given(*store, Join(prefix, {1, 2, 3})), 96);
  EXPECT_EQ(store->state(), "1 prefix");
  EXPECT_EQ(Given(*Open(), prefix), 64);  // one token is left to be computed
  EXPECT_EQ(Given(*Open(), Join(Count(40), {1, 2, 3})), 32);
  EXPECT_EQ(Given(*Open(), Count(90, 6)), 0);
}

TEST_F(PrefixStoreTest, KnowsHowLongThePrefixesAreThatItFound) {
  auto store = Open();
  EXPECT_TRUE(Store(*store, Count(96)));
  EXPECT_TRUE(Store(*store, Count(200, 6), "file:b"));
  store = Open();
  EXPECT_EQ(store->MostTokens(), 0);
  store->Look();
  EXPECT_EQ(store->MostTokens(), 200);
}

TEST_F(PrefixStoreTest, WhoLooksBesideTheFirstKnowsWhatItFinds) {
  for (int64_t i = 0; i < 40; ++i) EXPECT_TRUE(Store(*Open(), Count(96, 7 + 2 * i)));
  const PromptTokens prompt = Join(Count(96, 7), {1});
  for (int turn = 0; turn < 20; ++turn) {
    auto store = Open();
    std::vector<std::thread> threads;
    std::atomic<int> found{0};
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&] {
        store->Look();
        found += store->Find(PrefixStore::KeyOf("file:a"), prompt) != nullptr;
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(found, 3);
  }
}

TEST_F(PrefixStoreTest, FilesAreOfTheirUserOnly) {
  Store(*Open(), Count(96));
  ASSERT_EQ(Files().size(), 1u);
  struct stat info;
  ASSERT_EQ(stat(Files()[0].c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(PrefixStoreTest, APrefixGoesOnWhereAnotherEnds) {
  auto store = Open();
  const PromptTokens all = Count(320);
  EXPECT_TRUE(Store(*store, PromptTokens(all.begin(), all.begin() + 96)));
  EXPECT_FALSE(Store(*store, PromptTokens(all.begin(), all.begin() + 96)));   // is there
  EXPECT_FALSE(Store(*store, PromptTokens(all.begin(), all.begin() + 128)));  // too little is new
  EXPECT_TRUE(Store(*store, all));
  EXPECT_EQ(Files().size(), 2u);
  EXPECT_EQ(Given(*Open(), Join(all, {1})), 320);
  const std::vector<PrefixStore::Listed> listed = store->List("file:a");
  ASSERT_EQ(listed.size(), 2u);
  EXPECT_EQ(listed[1].begin, 96);
  EXPECT_EQ(listed[1].tokens, all);
}

TEST_F(PrefixStoreTest, APrefixMayEndInABlock) {
  auto store = Open();
  const PromptTokens all = Count(250);
  EXPECT_TRUE(Store(*store, PromptTokens(all.begin(), all.begin() + 75)));
  EXPECT_EQ(Given(*Open(), Join(Count(75), {1})), 75);
  EXPECT_EQ(Given(*Open(), Join(Count(74), {1})), 64);
  EXPECT_EQ(store->Wants(PrefixStore::KeyOf("file:a"), all), 64);  // the begun block again
  EXPECT_TRUE(Store(*store, all));
  EXPECT_EQ(Given(*Open(), Join(all, {1})), 250);
  EXPECT_EQ(Given(*Open(), Join(Count(80), {1})), 75);
  EXPECT_EQ(Given(*Open(), Join(Count(100), {1})), 96);
}

TEST_F(PrefixStoreTest, WhatIsStoredIsItsOwnersAndItsModels) {
  const PromptTokens prompt = Join(Count(96), {1});
  Store(*Open(), Count(96), "file:a");
  EXPECT_EQ(Given(*Open(), prompt, "file:b"), 0);
  EXPECT_EQ(Given(*Open(), prompt, "salt:a"), 0);
  EXPECT_EQ(Given(*Open("another"), prompt, "file:a"), 0);
  EXPECT_TRUE(Open()->List("file:b").empty());
  EXPECT_EQ(Given(*Open(), prompt, "file:a"), 96);
}

TEST_F(PrefixStoreTest, ADatabaseInMemoryIsNobodyNextTime) {
  EXPECT_FALSE(Store(*Open(), Count(96), "connection:1"));
  EXPECT_EQ(Given(*Open(), Join(Count(96), {1}), "connection:1"), 0);
}

// Of full attention 10 bytes a block, of a window of 40 tokens 6, and a state of 100.
PrefixStoreOptions OptionsWithWindowAndState(const std::string& folder) {
  return {.folder = folder,
          .model = "m",
          .classes = {{0, 10}, {40, 6}},
          .state_bytes = 100,
          .block_tokens = kBlockTokens};
}

TEST_F(PrefixStoreTest, OfWindowsAndStatesAPrefixHasWhatItsEndSees) {
  PrefixStore store(OptionsWithWindowAndState(folder_));
  std::vector<std::string> pieces;
  for (const PrefixStore::Piece& piece : store.Layout(64, 150)) {
    pieces.push_back(absl::StrCat(piece.cache_class, ":", piece.index, ":", piece.bytes));
  }
  // The token at 150 sees those from 111 on, and itself.
  EXPECT_THAT(pieces,
              testing::ElementsAre("0:2:10", "0:3:10", "0:4:10", "1:3:6", "1:4:6", "-1:0:100"));
}

TEST_F(PrefixStoreTest, OfWindowsAndStatesAPrefixEndsWhereAFileDoes) {
  const PrefixKey key = PrefixStore::KeyOf("file:a");
  const PromptTokens all = Count(400);
  auto write = [&](PrefixStore& store, int64_t tokens) {
    const auto prefix = absl::MakeConstSpan(all).subspan(0, tokens);
    const std::optional<int64_t> begin = store.Wants(key, prefix);
    if (!begin) return int64_t{-1};
    size_t bytes = 0;
    for (const PrefixStore::Piece& piece : store.Layout(*begin, tokens)) bytes += piece.bytes;
    store.Write(key, prefix, *begin, std::vector<char>(bytes, 'x'));
    store.Flush();
    return *begin;
  };
  auto found = [&](int64_t tokens) {
    PrefixStore store(OptionsWithWindowAndState(folder_));
    store.Look();
    const auto stored = store.Find(key, absl::MakeConstSpan(all).subspan(0, tokens));
    return stored == nullptr ? std::make_pair(int64_t{0}, size_t{0})
                             : std::make_pair(stored->tokens, stored->parts.size());
  };
  PrefixStore store(OptionsWithWindowAndState(folder_));
  EXPECT_EQ(write(store, 150), 0);
  EXPECT_EQ(write(store, 300), 128);  // from the begun block on
  EXPECT_EQ(write(store, 300), -1);
  EXPECT_EQ(write(store, 320), -1);  // too little is new
  EXPECT_EQ(found(301), std::make_pair(int64_t{300}, size_t{10 + 2 + 1}));
  EXPECT_EQ(found(300), std::make_pair(int64_t{150}, size_t{5 + 2 + 1}));
  EXPECT_EQ(found(150), std::make_pair(int64_t{0}, size_t{0}));
  // Without what it goes on from a file is of no use.
  std::string first;
  for (const std::string& path : Files()) {
    if (ReadPrefixHead(path)->description.begin == 0) first = path;
  }
  std::filesystem::remove(first);
  EXPECT_EQ(found(301), std::make_pair(int64_t{0}, size_t{0}));
  EXPECT_EQ(found(400), std::make_pair(int64_t{0}, size_t{0}));
  // Nor does it keep what it was to be from being written again.
  PrefixStore again(OptionsWithWindowAndState(folder_));
  again.Look();
  EXPECT_EQ(write(again, 300), 0);
  EXPECT_EQ(found(301), std::make_pair(int64_t{300}, size_t{10 + 2 + 1}));
}

TEST_F(PrefixStoreTest, OfStatesAloneAFileNeedsNoOther) {
  const PrefixKey key = PrefixStore::KeyOf("file:a");
  const PromptTokens all = Count(300);
  PrefixStore store({.folder = folder_,
                     .model = "m",
                     .classes = {{0, 0}},
                     .state_bytes = 100,
                     .block_tokens = kBlockTokens});
  for (const int64_t tokens : {150, 300}) {
    const auto prefix = absl::MakeConstSpan(all).subspan(0, tokens);
    ASSERT_EQ(store.Wants(key, prefix), 0);
    store.Write(key, prefix, 0, std::vector<char>(100, 'x'));
    store.Flush();
    EXPECT_EQ(store.Wants(key, prefix), std::nullopt);
  }
}

TEST_F(PrefixStoreTest, WhatAdaptersHaveMadeIsTheirs) {
  PrefixStore store(OptionsWithWindowAndState(folder_));
  const PromptTokens prefix = Count(96);
  const PrefixKey with = PrefixStore::KeyOf("file:a", "adapter*1");
  size_t bytes = 0;
  for (const PrefixStore::Piece& piece : store.Layout(0, 96)) bytes += piece.bytes;
  store.Write(with, prefix, 0, std::vector<char>(bytes, 'x'));
  store.Flush();
  const PromptTokens prompt = Join(prefix, {1});
  EXPECT_THAT(store.Find(with, prompt), NotNull());
  EXPECT_THAT(store.Find(PrefixStore::KeyOf("file:a"), prompt), IsNull());
  EXPECT_THAT(store.Find(PrefixStore::KeyOf("file:a", "adapter*2"), prompt), IsNull());
  ASSERT_EQ(store.List("file:a").size(), 1u);
  EXPECT_EQ(store.List("file:a")[0].adapters, "adapter*1");
}

TEST_F(PrefixStoreTest, CutAndDamagedFilesAreRefusedWithAReason) {
  const PromptTokens prefix = Count(96);
  Store(*Open(), prefix);
  const std::string path = Files()[0];
  std::string whole;
  {
    std::ifstream in(path, std::ios::binary);
    whole.assign(std::istreambuf_iterator<char>(in), {});
  }
  std::mt19937 random(1);
  for (int turn = 0; turn < 300; ++turn) {
    std::string bytes = whole;
    if (turn % 3 == 0) {
      bytes.resize(random() % whole.size());
    } else if (turn % 3 == 1) {
      bytes[random() % bytes.size()] ^= static_cast<char>(1 + random() % 255);
    } else {  // in the head, where sizes are
      bytes[random() % 48] ^= static_cast<char>(1 + random() % 255);
    }
    std::filesystem::remove(path);
    std::ofstream(path, std::ios::binary) << bytes;
    chmod(path.c_str(), 0600);
    auto store = Open();
    EXPECT_EQ(Given(*store, Join(prefix, {1})), 0) << "turn " << turn;
    const bool begins_like_one = absl::StartsWith(bytes, "sqlite-lm kv ");
    EXPECT_THAT(store->state(),
                HasSubstr(begins_like_one ? "the stored prefix '" : "begin like a stored prefix"))
        << "turn " << turn;
    EXPECT_NE(std::filesystem::exists(path), begins_like_one) << "turn " << turn;
  }
  EXPECT_TRUE(Store(*Open(), prefix));  // again
  EXPECT_EQ(Given(*Open(), Join(prefix, {1})), 96);
}

// The same tokens have the same file, but what lies behind them in its last block is anything.
TEST_F(PrefixStoreTest, WhatAnotherProcessHasPutInAFilesPlaceIsNotDamaged) {
  const PrefixKey key = PrefixStore::KeyOf("file:a");
  const PromptTokens prefix = Count(90), prompt = Join(prefix, {1});
  auto one = Open(), another = Open();
  EXPECT_EQ(Given(*another, prompt), 0);
  std::vector<char> data = BlocksOf(prefix, 0);
  data.back() = static_cast<char>(~data.back());
  one->Write(key, prefix, 0, data);
  one->Flush();
  const std::shared_ptr<const StoredPrefix> known = one->Find(key, prompt);
  ASSERT_THAT(known, NotNull());
  EXPECT_TRUE(Store(*another, prefix));
  EXPECT_EQ(Given(*one, prompt), 0);
  ASSERT_EQ(Files().size(), 1u);
  EXPECT_EQ(Given(*one, prompt), 90);
  // Who began to read before that is as wrong, and no reason either.
  one->Refuse(known->parts.back().file, absl::DataLossError("it has damaged blocks"));
  EXPECT_EQ(Given(*one, prompt), 90);
  EXPECT_EQ(one->state(), "1 prefix");
  EXPECT_EQ(Given(*another, prompt), 90);
}

TEST_F(PrefixStoreTest, AnInterruptedLookRefusesNothing) {
  Store(*Open(), Count(96));
  ASSERT_TRUE(Store(*Open(), Count(96, 500)));
  auto store = Open();
  {
    const CheckpointScope interrupted([] { return true; });
    absl::SleepFor(absl::Milliseconds(10));  // it is asked after five
    EXPECT_EQ(Given(*store, Join(Count(96), {1})), 0);
    EXPECT_EQ(store->state(), "0 prefixes");
  }
  EXPECT_EQ(Files().size(), 2u);
  absl::SleepFor(absl::Milliseconds(250));  // until it looks again
  EXPECT_EQ(Given(*store, Join(Count(96), {1})), 96);
}

TEST_F(PrefixStoreTest, AFileThatOthersMayWriteIsNotBelieved) {
  Store(*Open(), Count(96));
  chmod(Files()[0].c_str(), 0666);
  auto store = Open();
  EXPECT_EQ(Given(*store, Join(Count(96), {1})), 0);
  EXPECT_THAT(store->state(), HasSubstr("may be written by other users"));
  const std::string path = Files()[0];
  std::filesystem::rename(path, folder_ + "/elsewhere");
  chmod((folder_ + "/elsewhere").c_str(), 0600);
  std::filesystem::create_symlink("elsewhere", path);
  EXPECT_EQ(Given(*Open(), Join(Count(96), {1})), 0);
}

TEST_F(PrefixStoreTest, WhatWasUsedLongestAgoGoes) {
  auto store = Open("m", 8 * kBlockBytes);
  for (int32_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(Store(*store, Count(96, 1000 * i)));
    absl::SleepFor(absl::Milliseconds(20));  // files have times
  }
  EXPECT_LE(Files().size(), 2u);
  EXPECT_EQ(Given(*Open(), Join(Count(96, 0), {1})), 0);
  EXPECT_EQ(Given(*Open(), Join(Count(96, 3000), {1})), 96);
}

TEST_F(PrefixStoreTest, WhatANewFileGoesOnFromWasUsedByIt) {
  auto store = Open("m", 14 * kBlockBytes);
  auto write = [&](const PromptTokens& tokens) {
    EXPECT_TRUE(Store(*store, tokens));
    absl::SleepFor(absl::Milliseconds(20));  // files have times
  };
  write(Count(96));
  write(Count(96, 1000));
  write(Count(192));  // goes on from the first
  write(Count(96, 2000));
  EXPECT_EQ(Files().size(), 3u);
  EXPECT_EQ(Given(*Open(), Join(Count(192), {1})), 192);
  EXPECT_EQ(Given(*Open(), Join(Count(96, 1000), {1})), 0);
}

TEST_F(PrefixStoreTest, WhatGoesOnFromAnotherIsUsedBeforeIt) {
  auto store = Open();
  const PromptTokens all = Count(480);
  for (const int64_t end : {96, 192, 288, 480}) {
    EXPECT_TRUE(Store(*store, PromptTokens(all.begin(), all.begin() + end)));
  }
  std::vector<PrefixFileUse> use = ListPrefixUse(folder_);
  ASSERT_EQ(use.size(), 4u);
  std::sort(use.begin(), use.end(), [](const PrefixFileUse& a, const PrefixFileUse& b) {
    return ReadPrefixHead(a.path)->description.begin < ReadPrefixHead(b.path)->description.begin;
  });
  for (size_t i = 1; i < use.size(); ++i) EXPECT_GT(use[i - 1].used, use[i].used) << i;
}

// Each file is opened when it is written, and now and then to be counted.
TEST_F(PrefixStoreTest, AFullerFolderTakesNoLongerToWriteTo) {
  constexpr int32_t kFiles = 100;
  auto store = Open();
  const int watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
  ASSERT_GE(watch, 0);
  const absl::Cleanup closed = [watch] { close(watch); };
  ASSERT_GE(inotify_add_watch(watch, folder_.c_str(), IN_OPEN), 0);
  for (int32_t i = 0; i < kFiles; ++i) ASSERT_TRUE(Store(*store, Count(96, 1000 * i)));
  int opened = 0;
  alignas(inotify_event) char events[1 << 16];
  for (ssize_t bytes; (bytes = read(watch, events, sizeof(events))) > 0;) {
    for (const char* at = events; at < events + bytes;) {
      const auto* event = reinterpret_cast<const inotify_event*>(at);
      opened += event->len > 0 && absl::EndsWith(event->name, ".prefix");
      at += sizeof(inotify_event) + event->len;
    }
  }
  EXPECT_GE(opened, kFiles);
  EXPECT_LE(opened, 2 * kFiles);
}

TEST_F(PrefixStoreTest, HoldsWhatItMayAndNotMuchLess) {
  constexpr int64_t kMost = 400 * kBlockBytes;
  auto one = Open("m", kMost), another = Open("m", kMost);
  int64_t bytes = 0;
  const auto write = [&](PrefixStore& store, int32_t i) {
    ASSERT_TRUE(Store(store, Count(96, 1000 * i)));
    bytes = 0;
    for (const PrefixFileUse& file : ListPrefixUse(folder_)) bytes += file.bytes;
  };
  for (int32_t i = 0; i < 140; ++i) {
    write(*one, i);
    EXPECT_LE(bytes, kMost);
    EXPECT_GE(bytes, i > 110 ? kMost * 7 / 8 : 0);
  }
  for (int32_t i = 140; i < 200; ++i) {
    write(i % 2 == 0 ? *one : *another, i);
    EXPECT_LE(bytes, kMost + kMost / 64);
  }
}

TEST_F(PrefixStoreTest, AFullDiskLosesNothingButTheStore) {
  auto store = Open();
  Store(*store, Count(96));
  {
    const FileSizeLimit full(1500);
    EXPECT_TRUE(Store(*store, Count(96, 500)));
  }
  EXPECT_THAT(store->state(), HasSubstr("File too large"));
  EXPECT_EQ(Files().size(), 1u);                // nothing is left of it
  EXPECT_FALSE(Store(*store, Count(96, 500)));  // not at once again
  EXPECT_EQ(Given(*Open(), Join(Count(96), {1})), 96);
}

TEST_F(PrefixStoreTest, FilesOfOthersAreNeitherCountedNorRemoved) {
  const std::string digits(32, '0'), text(20 * kBlockBytes, 'x');
  const std::string looks_like_ours = folder_ + "/" + digits + ".prefix";
  std::vector<std::string> theirs = {looks_like_ours};
  for (const char* name : {"names.prefix", "backup.2024.tar.part", "names.prefix.999999999.0.part",
                           "readme.txt", ".prefix", ".part"}) {
    theirs.push_back(folder_ + "/" + name);
  }
  for (const char* end : {"0.prefix", "g.prefix", ".prefix.part", ".prefix.0.part",
                          ".prefix.999999999.x.part", ".txt.0123456789abcdef.part"}) {
    theirs.push_back(folder_ + "/" + digits + end);
  }
  std::filesystem::create_directories(folder_);
  for (const std::string& path : theirs) {
    std::ofstream(path) << text;
    std::filesystem::last_write_time(path, {});  // used before all others
  }
  auto store = Open("m", 8 * kBlockBytes);
  EXPECT_EQ(store->state(), absl::StrCat("0 prefixes; '", looks_like_ours,
                                         "' does not begin like a stored prefix, and is left "
                                         "alone"));
  ASSERT_TRUE(Store(*store, Count(96)));
  EXPECT_EQ(Given(*store, Join(Count(96), {1})), 96);
  // Nor what has come into the place of a file that was known.
  const std::vector<std::string> files = Files();
  const auto ours = std::find_if(files.begin(), files.end(), [&theirs](const std::string& path) {
    return std::find(theirs.begin(), theirs.end(), path) == theirs.end();
  });
  ASSERT_NE(ours, files.end());
  std::ofstream(*ours, std::ios::trunc) << text;
  theirs.push_back(*ours);
  EXPECT_EQ(Given(*store, Join(Count(96), {1})), 0);
  for (int32_t i = 1; i < 4; ++i) EXPECT_TRUE(Store(*store, Count(96, 1000 * i)));
  for (const std::string& path : theirs) {
    EXPECT_EQ(std::filesystem::file_size(path), text.size()) << path;
  }
}

TEST_F(PrefixStoreTest, AFolderThatCannotBeMadeSaysSo) {
  std::ofstream(folder_) << "a file";
  auto store = Open();
  EXPECT_EQ(Given(*store, Join(Count(96), {1})), 0);
  EXPECT_THAT(store->state(), HasSubstr(folder_));
  std::filesystem::remove(folder_);
}

TEST_F(PrefixStoreTest, WhatWasWrongWithTheFolderIsSaidUntilAFileIsWritten) {
  std::ofstream(folder_) << "a file";
  auto store = Open();
  std::filesystem::remove(folder_);
  std::filesystem::create_directories(folder_);
  const std::string unknown = absl::StrCat(folder_, "/", std::string(32, '0'), ".prefix");
  std::ofstream(unknown) << "of others";
  absl::SleepFor(absl::Milliseconds(250));  // until it looks again
  EXPECT_THAT(store->state(),
              AllOf(HasSubstr("0 prefixes; "), HasSubstr("ot a directory"), HasSubstr(unknown)));
  ASSERT_TRUE(Store(*store, Count(96)));
  EXPECT_EQ(store->state(), absl::StrCat("1 prefix; '", unknown,
                                         "' does not begin like a stored prefix, and is left "
                                         "alone"));
}

// As in a container that is begun anew, whose processes have the numbers of those before.
TEST_F(PrefixStoreTest, AWriterOfAKilledOnesNumberWrites) {
  ASSERT_TRUE(Store(*Open(), Count(96)));
  const std::string path = Files()[0];
  std::filesystem::remove(path);
  for (int i = 0; i < 100; ++i) {
    std::ofstream(absl::StrCat(path, ".", getpid(), ".", i, ".part")) << "half of";
  }
  auto store = Open();
  EXPECT_EQ(Files().size(), 100u);  // this process might be of an earlier version, and write them
  EXPECT_TRUE(Store(*store, Count(96)));
  EXPECT_EQ(Files().size(), 101u);
  for (const std::string& file : Files()) {
    if (file == path) continue;
    std::filesystem::last_write_time(
        file, std::filesystem::file_time_type::clock::now() - std::chrono::hours(2));
  }
  store = Open();
  EXPECT_THAT(Files(), testing::ElementsAre(path));
  EXPECT_EQ(Given(*store, Join(Count(96), {1})), 96);
  EXPECT_EQ(store->state(), "1 prefix");
}

// Whatever the number of the writer: it may be one of another namespace.
TEST_F(PrefixStoreTest, WhatIsBeingWrittenStaysAndTakesNoOthersPlace) {
  auto store = Open("m", 8 * kBlockBytes);
  ASSERT_TRUE(Store(*store, Count(96)));
  const std::string name(32, 'a');
  for (const char* number : {"0123456789abcdef", "999999999.0"}) {
    const std::string part = absl::StrCat(folder_, "/", name, ".prefix.", number, ".part");
    const auto writer = LockedPart::Create(part).value();
    ASSERT_TRUE(writer->Append(std::string(7 * kBlockBytes, 'x')).ok());
    Open();
    EXPECT_TRUE(std::filesystem::exists(part));
    EXPECT_EQ(Files().size(), 2u);
    EXPECT_EQ(Given(*store, Join(Count(96), {1})), 96);
  }
  EXPECT_EQ(Files().size(), 1u);
}

TEST_F(PrefixStoreTest, WhatAKilledWriterLeavesIsRemovedByThoseWhoWrite) {
  auto store = Open("m", 8 * kBlockBytes);
  const std::string name(32, 'a');
  std::ofstream(absl::StrCat(folder_, "/", name, ".prefix.0123456789abcdef.part"))
      << std::string(9 * kBlockBytes, 'x');
  EXPECT_TRUE(Store(*store, Count(96)));
  EXPECT_EQ(Files().size(), 1u);
  EXPECT_EQ(Given(*store, Join(Count(96), {1})), 96);
}

// By hand: LM_STORE_KILLS=100.
TEST_F(PrefixStoreTest, WritersMayBeKilledAndBeSeveral) {
  const char* asked = std::getenv("LM_STORE_KILLS");
  const int kills = asked != nullptr ? std::atoi(asked) : 8;
  Open();  // makes the folder
  auto has_written = [this] {
    const std::vector<std::string> files = Files();
    return std::any_of(files.begin(), files.end(), [](const std::string& file) {
      return std::filesystem::path(file).extension() == ".prefix";
    });
  };
  std::mt19937 random(2);
  for (int turn = 0; turn < kills; ++turn) {
    std::vector<pid_t> writers;
    for (int w = 0; w < 2; ++w) {
      const pid_t writer = fork();
      if (writer == 0) {
        auto store = Open();
        for (int32_t i = 0;; ++i) Store(*store, Count(64 + 32 * (i % 5), (turn + i) % 40 * 1000));
      }
      ASSERT_GT(writer, 0);
      writers.push_back(writer);
    }
    absl::SleepFor(absl::Microseconds(2000 + random() % 20000));
    // On a busy machine they may not have come to write anything: the last ones have the time.
    const absl::Time give_up = absl::Now() + absl::Minutes(1);
    while (turn + 1 == kills && !has_written() && absl::Now() < give_up) {
      absl::SleepFor(absl::Milliseconds(1));
    }
    for (const pid_t writer : writers) {
      kill(writer, SIGKILL);
      waitpid(writer, nullptr, 0);
    }
    auto store = Open();
    EXPECT_THAT(store->state(), testing::Not(HasSubstr("stored prefix"))) << store->state();
  }
  auto store = Open();  // removes what they left
  int given = 0;
  for (int32_t i = 0; i < 40; ++i) given += Given(*store, Join(Count(192, i * 1000), {1})) > 0;
  EXPECT_GT(given, 0);
  for (const std::string& file : Files()) EXPECT_THAT(file, testing::EndsWith(".prefix"));
}

}  // namespace
}  // namespace lm
