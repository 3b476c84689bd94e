// Where the models' own expressions cut texts (testdata/splits.tsv, made by testdata/make_splits.py).
#include <gtest/gtest.h>

#include <map>
#include <memory>
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

}  // namespace
}  // namespace lm
