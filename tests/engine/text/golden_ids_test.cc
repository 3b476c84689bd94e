// The ids that llama.cpp gives (testdata/golden.tsv, made by testdata/make_fixtures.py).
#include <gtest/gtest.h>

#include <map>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "test_vocabulary.h"

namespace lm {
namespace {

TEST(GoldenIdsTest, EveryFamilyGivesThePeersIds) {
  std::map<std::string, std::unique_ptr<Tokenizer>> tokenizers;
  int compared = 0;
  for (const std::string& line : TestDataLines("golden.tsv")) {
    const std::vector<std::string> fields = absl::StrSplit(line, '\t');
    ASSERT_EQ(fields.size(), 6u) << line;
    auto& tokenizer = tokenizers[absl::StrCat(fields[0], fields[1], fields[2])];
    if (tokenizer == nullptr) tokenizer = TestTokenizer(fields[0], fields[1], fields[2] == "1");
    TextPiece piece;
    ASSERT_TRUE(absl::CUnescape(fields[4], &piece.text)) << line;
    piece.kind = fields[3] == "m" ? TextKind::kMarkup : TextKind::kPlain;
    EXPECT_EQ(absl::StrJoin(EncodeOrDie(*tokenizer, {piece}), " "), fields[5])
        << fields[0] << " " << fields[1] << " " << fields[3] << " " << fields[4];
    ++compared;
  }
  EXPECT_EQ(tokenizers.size(), 33u);
  EXPECT_GT(compared, 1000);
}

}  // namespace
}  // namespace lm
