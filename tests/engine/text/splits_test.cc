// Where the models' own expressions cut texts (testdata/splits.tsv, made by testdata/make_splits.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "engine/text/split_family.h"
#include "engine/text/text_splitter.h"
#include "test_vocabulary.h"

namespace lm {
namespace {

TEST(SplitsTest, TextsAreCutAsTheModelsOwnExpressionsSay) {
  std::map<std::string, std::unique_ptr<TextSplitter>> splitters;
  for (const std::string& line : TestDataLines("splits.tsv")) {
    const std::vector<std::string> fields = absl::StrSplit(line, '\t');
    ASSERT_EQ(fields.size(), 3u) << line;
    auto& splitter = splitters[fields[0]];
    if (splitter == nullptr) {
      splitter = TextSplitter::Create(FindSplitFamily(fields[0]).value().patterns).value();
    }
    std::string text;
    ASSERT_TRUE(absl::CUnescape(fields[1], &text)) << line;
    std::vector<TextSplitter::Piece> pieces;
    ASSERT_TRUE(splitter->Split(text, &pieces).ok());
    std::vector<uint32_t> sizes;
    for (const auto& [begin, end] : pieces) sizes.push_back(end - begin);
    EXPECT_EQ(absl::StrJoin(sizes, " "), fields[2]) << fields[0] << " '" << text << "'";
  }
  EXPECT_EQ(splitters.size(), 5u);
}

// Jais 2 has its expression in one piece, in which many spaces take quadratic time.
TEST(SplitsTest, RunsOfSpacesAreCutAsInOneExpression) {
  constexpr const char kWhole[] =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
      R"(|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S))"
      R"(|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1})";
  const auto whole = TextSplitter::Create({kWhole}).value();
  const auto family = TextSplitter::Create(FindSplitFamily("jais-2")->patterns).value();
  const std::vector<std::string> units = {" ",  "\t", "\n", "\r\n", "\u00a0", "\u2028",
                                          "\v", "a",  "7",  "!",    "'s",     "é"};
  std::mt19937 random(1);
  std::vector<TextSplitter::Piece> expected, pieces;
  size_t cut = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (size_t parts = 1 + random() % 6; parts > 0; --parts) {
      const std::string& unit = units[random() % units.size()];
      for (size_t times = 1 + random() % (random() % 8 == 0 ? 1500 : 9); times > 0; --times) {
        text += unit;
      }
    }
    ASSERT_TRUE(whole->Split(text, &expected).ok());
    ASSERT_TRUE(family->Split(text, &pieces).ok());
    ASSERT_TRUE(std::equal(
        pieces.begin(), pieces.end(), expected.begin(), expected.end(),
        [](const auto& a, const auto& b) { return a.begin == b.begin && a.end == b.end; }))
        << absl::CEscape(text);
    cut += pieces.size();
  }
  EXPECT_GT(cut, 100'000u);
}

}  // namespace
}  // namespace lm
