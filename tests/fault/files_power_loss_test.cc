// The power fails while a file that is no database is written: a stored prefix, packed weights, a
// new file, a download. Under its name there is then the whole file or none; what is left of one is
// gone on from or refused, and never believed.
//
//   files_power_loss_test                    # 100 cuts of each kind
//   LM_POWER_CUTS=10000 files_power_loss_test
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <numeric>
#include <optional>

#include "absl/strings/str_cat.h"
#include "engine/base/new_file.h"
#include "engine/base/random.h"
#include "engine/base/sha256.h"
#include "engine/cache/prefix_store.h"
#include "engine/model/packed_file.h"
#include "engine/remote/part_file.h"
#include "tests/fault/recording_disk.h"

namespace lm {
namespace {

using testing::HasSubstr;

int NumCuts() {
  const char* cuts = std::getenv("LM_POWER_CUTS");
  return cuts == nullptr ? 100 : std::atoi(cuts);
}

std::string RandomText(uint64_t seed, size_t bytes) {
  std::string text(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>(RandomBits(seed, i));
  return text;
}

std::optional<std::string> ContentOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

class FilesPowerLossTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string name = absl::StrCat(
        "power-", getpid(), "-", testing::UnitTest::GetInstance()->current_test_info()->name());
    folder_ = std::filesystem::canonical(testing::TempDir()) / name;
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(made_ = folder_ / "made");
    left_ = folder_ / "left";
    disk_.Start(made_.string());
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // Has `check` look at what is left in left_ after cuts at random of those changes that were made.
  void Cut(const std::function<void(int64_t changes)>& check) {
    disk_.Stop();
    const int64_t changes = disk_.changes();
    ASSERT_GT(changes, 3);
    std::mt19937_64 dice(20261123);
    for (int i = 0; i < NumCuts() && !HasFailure(); ++i) {
      const int64_t made = static_cast<int64_t>(dice() % (changes + 1));
      SCOPED_TRACE(absl::StrCat("cut ", i, ", after ", made, " of ", changes, " changes"));
      disk_.Recover(made, &dice, left_.string());
      check(made);
    }
  }

  RecordingDisk& disk_ = RecordingDisk::Get();
  std::filesystem::path folder_, made_, left_;
};

constexpr int64_t kBlockTokens = 32, kBlockBytes = 3000;

// Bytes that tell for which prefix they were computed.
std::string BlockOf(const std::vector<int32_t>& tokens, int64_t index) {
  uint64_t seed = 0;
  const auto end = std::min<int64_t>((index + 1) * kBlockTokens, tokens.size());
  for (int64_t i = 0; i < end; ++i) seed = RandomBits(seed, tokens[i]);
  return RandomText(seed, kBlockBytes);
}

std::unique_ptr<PrefixStore> OpenStore(const std::filesystem::path& folder) {
  return std::make_unique<PrefixStore>(PrefixStoreOptions{.folder = folder.string(),
                                                          .model = "m",
                                                          .classes = {{0, kBlockBytes}},
                                                          .block_tokens = kBlockTokens});
}

void Store(PrefixStore* store, const std::vector<int32_t>& tokens) {
  const PrefixKey key = PrefixStore::KeyOf("file:a");
  const std::optional<int64_t> begin = store->Wants(key, tokens);
  if (!begin) return;
  std::vector<char> data;
  for (const PrefixStore::Piece& piece : store->Layout(*begin, tokens.size())) {
    const std::string block = BlockOf(tokens, piece.index);
    data.insert(data.end(), block.begin(), block.end());
  }
  store->Write(key, tokens, *begin, std::move(data));
  store->Flush();
}

// How many tokens are given of those, every block whole.
int64_t Given(PrefixStore* store, std::vector<int32_t> tokens) {
  tokens.push_back(1);  // which is left to be computed
  store->Look();
  const auto stored = store->Find(PrefixStore::KeyOf("file:a"), tokens);
  if (stored == nullptr) return 0;
  tokens.resize(stored->tokens);
  for (const StoredPrefix::Part& part : stored->parts) {
    std::string block(kBlockBytes, '\0');
    const absl::Status read =
        ReadPrefixPiece(part.file->path, part.file->head.pieces[part.piece], absl::MakeSpan(block));
    EXPECT_TRUE(read.ok()) << read;
    EXPECT_TRUE(block == BlockOf(tokens, part.index)) << "block " << part.index;
  }
  return stored->tokens;
}

TEST_F(FilesPowerLossTest, AStoredPrefixIsThereWholeOnceItIsWritten) {
  std::vector<std::vector<int32_t>> prefixes;
  for (const int64_t size : {96, 200, 64, 330}) {  // the second goes on from the first
    prefixes.emplace_back(size);
    std::iota(prefixes.back().begin(), prefixes.back().end(), size == 200 ? 96 : size);
  }
  std::vector<int64_t> written;
  {
    auto store = OpenStore(made_);
    for (const auto& prefix : prefixes) {
      Store(store.get(), prefix);
      written.push_back(disk_.changes());
    }
  }
  Cut([&](int64_t changes) {
    auto store = OpenStore(left_);
    for (size_t i = 0; i < prefixes.size(); ++i) {
      const int64_t given = Given(store.get(), prefixes[i]);
      if (changes < written[i]) continue;
      EXPECT_EQ(given, static_cast<int64_t>(prefixes[i].size()));
    }
    EXPECT_THAT(store->state(), Not(HasSubstr("stored prefix")));  // is damaged
    for (const auto& prefix : prefixes) Store(store.get(), prefix);
    for (const auto& prefix : prefixes) {
      EXPECT_EQ(Given(store.get(), prefix), static_cast<int64_t>(prefix.size()));
    }
  });
}

TEST_F(FilesPowerLossTest, PackedWeightsAreThoseOfTheirSourceOrNone) {
  constexpr int kMatrices = 5;
  const auto matrix = [](uint64_t source, int i) {
    return RandomText(source * 100 + i, 1000 + 700 * i);
  };
  const auto source = [](uint64_t number) {
    return PackedSource{.path = "model.gguf",
                        .contents = absl::StrCat("version ", number),
                        .layout = "rows",
                        .digest = "d"};
  };
  const auto write = [&](const std::filesystem::path& path, uint64_t number) {
    auto writer = PackedFileWriter::Create(path.string());
    ASSERT_TRUE(writer.ok()) << writer.status();
    for (int i = 0; i < kMatrices; ++i) {
      (*writer)->Add(absl::StrCat("matrix ", i), matrix(number, i));
    }
    const absl::Status finished = (*writer)->Finish(source(number));
    ASSERT_TRUE(finished.ok()) << finished;
  };
  // The first of them, or why there is none.
  const auto open = [&](uint64_t number) -> absl::Status {
    auto packed = PackedFile::Open((left_ / "m.pack").string(), source(number), 1);
    if (!packed.ok()) return packed.status();
    if (const absl::Status whole = (*packed)->Check(); !whole.ok()) return whole;
    for (int i = 0; i < kMatrices; ++i) {
      const auto found = PackedFile::Find(*packed, absl::StrCat("matrix ", i));
      if (!found) return absl::InternalError("a matrix is missing");
      const absl::Span<const char> bytes = found->chars();
      EXPECT_TRUE(absl::string_view(bytes.data(), bytes.size()) == matrix(number, i)) << i;
    }
    return absl::OkStatus();
  };
  write(made_ / "m.pack", 1);
  write(made_ / "m.pack", 2);
  Cut([&](int64_t) {
    const absl::Status first = open(1), second = open(2);
    // Another's or none: never one that is damaged.
    EXPECT_TRUE(first.ok() || second.ok() || (absl::IsNotFound(first) && absl::IsNotFound(second)))
        << first << "\n"
        << second;
    EXPECT_FALSE(first.ok() && second.ok());
    write(left_ / "m.pack", 2);
    EXPECT_TRUE(open(2).ok()) << open(2);
  });
}

TEST_F(FilesPowerLossTest, ANewFileIsWholeOrNotThere) {
  const std::string content = RandomText(3, 30'000);
  const auto write = [&](const std::filesystem::path& path) -> absl::Status {
    auto file = NewFile::Create(path.string());
    if (!file.ok()) return file.status();
    for (size_t at = 0; at < content.size(); at += 1700) {
      if (absl::Status status = (*file)->Append(content.substr(at, 1700)); !status.ok()) {
        return status;
      }
    }
    return (*file)->Finish();
  };
  ASSERT_TRUE(write(made_ / "rows").ok());
  Cut([&](int64_t) {
    const std::optional<std::string> rows = ContentOf((left_ / "rows").string());
    EXPECT_TRUE(!rows || *rows == content) << "it has " << rows->size() << " bytes";
    std::filesystem::remove(left_ / "rows.part");
    const absl::Status again = write(left_ / "rows");
    EXPECT_TRUE(rows ? absl::IsAlreadyExists(again) : again.ok()) << again;
  });
}

TEST_F(FilesPowerLossTest, ADownloadGoesOnOrBeginsAnew) {
  const std::string content = RandomText(4, 60'000);
  Sha256 hash;
  hash.Add(content);
  const FileFacts facts = {.size = static_cast<int64_t>(content.size()), .sha256 = hash.Hex()};
  const std::atomic<bool> cancel{false};
  // What comes next, up to `end`.
  const auto take = [&](PartFile* part, int64_t end) {
    while (part->size() < end) {
      const absl::Status status = part->Append(absl::string_view(content).substr(
          part->size(), std::min<int64_t>(2500, end - part->size())));
      ASSERT_TRUE(status.ok()) << status;
    }
  };
  const auto download = [&](const std::filesystem::path& path) -> absl::Status {
    auto part = PartFile::Open(path.string(), facts, cancel);
    if (!part.ok()) return part.status();
    if ((*part)->is_there()) return absl::OkStatus();
    take(part->get(), facts.size);
    return (*part)->Commit();
  };
  {
    auto part = PartFile::Open((made_ / "m.gguf").string(), facts, cancel);
    ASSERT_TRUE(part.ok()) << part.status();
    take(part->get(), 20'000);
    ASSERT_TRUE((*part)->Restart("another version").ok());
    take(part->get(), 30'000);
  }
  ASSERT_TRUE(download(made_ / "m.gguf").ok());
  int refused = 0;
  Cut([&](int64_t) {
    absl::Status status = download(left_ / "m.gguf");
    if (absl::IsDataLoss(status)) {  // what was left of it was not what had come
      ++refused;
      EXPECT_FALSE(std::filesystem::exists(left_ / "m.gguf"));
      status = download(left_ / "m.gguf");
    }
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_TRUE(ContentOf((left_ / "m.gguf").string()) == content);
  });
  std::cout << refused << " of " << NumCuts() << " downloads began anew\n";
}

}  // namespace
}  // namespace lm
