#include "engine/gguf/read_ahead.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/engine/gguf/memory_file.h"

namespace lm {
namespace {

constexpr uint64_t kPiece = ReadAhead::kPieceBytes, kAhead = ReadAhead::kPiecesAhead;

// Remembers what is asked for, as numbers of pieces.
class AskedFile : public MemoryFile {
 public:
  explicit AskedFile(uint64_t size) : MemoryFile("", "asked.gguf", size) {}

  void WillRead(uint64_t offset, uint64_t bytes) const override {
    EXPECT_EQ(offset % kPiece, 0u);
    EXPECT_EQ(bytes, kPiece);
    asked.push_back(offset / kPiece);
  }
  mutable std::vector<uint64_t> asked;
};

std::vector<uint64_t> Pieces(uint64_t begin, uint64_t end) {
  std::vector<uint64_t> pieces;
  for (uint64_t piece = begin; piece < end; ++piece) pieces.push_back(piece);
  return pieces;
}

TEST(ReadAheadTest, StaysAsFarAheadOfTheReaderAndAsksOnce) {
  const auto asked_file = std::make_shared<AskedFile>(100 * kPiece);
  const AskedFile& file = *asked_file;
  ReadAhead ahead({asked_file});
  ahead.Reading(0, 0);
  EXPECT_EQ(file.asked, Pieces(0, kAhead));
  ahead.Reading(0, kPiece - 1);
  EXPECT_EQ(file.asked, Pieces(0, kAhead));
  ahead.Reading(0, 3 * kPiece);
  EXPECT_EQ(file.asked, Pieces(0, kAhead + 3));
}

TEST(ReadAheadTest, EndsWithTheFile) {
  const auto asked_file = std::make_shared<AskedFile>(2 * kPiece + 1);
  const AskedFile& file = *asked_file;
  ReadAhead ahead({asked_file});
  ahead.Reading(0, kPiece);
  EXPECT_EQ(file.asked, Pieces(1, 3));
  ahead.Reading(0, 0);  // a reader that goes back
  EXPECT_EQ(file.asked, (std::vector<uint64_t>{1, 2, 0}));
}

TEST(ReadAheadTest, FilesOfASplitModelHaveTheirOwn) {
  const auto first = std::make_shared<AskedFile>(kPiece),
             second = std::make_shared<AskedFile>(kPiece);
  ReadAhead ahead({first, second});
  ahead.Reading(1, 0);
  EXPECT_TRUE(first->asked.empty());
  EXPECT_EQ(second->asked, Pieces(0, 1));
}

}  // namespace
}  // namespace lm
