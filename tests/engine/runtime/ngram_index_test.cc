#include "engine/runtime/ngram_index.h"

#include <gtest/gtest.h>

#include <random>

namespace lm {
namespace {

using Tokens = std::vector<int32_t>;

TEST(NgramIndexTest, FindsTheLongestEndThatGoesOn) {
  NgramIndex index;
  index.Append({1, 2, 3, 7, 2, 3, 8, 5, 2, 3});
  const NgramIndex::Match match = index.Find({9, 1, 2, 3});
  EXPECT_EQ(match.length, 3);
  EXPECT_EQ(match.end, 2);
  EXPECT_EQ(index.Continuation(match, 2), (Tokens{7, 2}));
  EXPECT_EQ(index.Find({9, 2, 3}).end, 5);  // of equally long ones the last with something behind
  EXPECT_EQ(index.Find({9, 3}).length, 0);
  EXPECT_EQ(index.Find({3}).length, 0);
}

TEST(NgramIndexTest, GoesOnInCirclesAtTheEnd) {
  NgramIndex index;
  index.Append({4, 1, 2, 3, 1, 2, 3});
  const NgramIndex::Match match = index.Find({2, 3});
  EXPECT_EQ(match.end, 3);
  EXPECT_EQ(index.Continuation(match, 7), (Tokens{1, 2, 3, 1, 2, 3, 1}));
}

TEST(NgramIndexTest, NothingCrossesABorder) {
  NgramIndex index;
  index.Append({1, 2, NgramIndex::kBorder, 3, 1, 2, 5, NgramIndex::kBorder});
  const NgramIndex::Match match = index.Find({1, 2});
  EXPECT_EQ(match.end, 5);
  EXPECT_EQ(index.Continuation(match, 9), (Tokens{5}));
  EXPECT_EQ(index.Find({2, 5}).length, 0);
  EXPECT_EQ(index.Find({NgramIndex::kBorder, 3}).length, 0);
}

TEST(NgramIndexTest, ForgetsWhatIsDropped) {
  NgramIndex index;
  index.Append({1, 2, 3, 4, 5, 6});
  index.DropFirst(3);
  EXPECT_EQ(index.Find({1, 2}).length, 0);
  EXPECT_EQ(index.Find({4, 5}).end, 1);
  index.DropFirst(100);
  EXPECT_EQ(index.size(), 0u);
  EXPECT_EQ(index.Find({4, 5}).length, 0);
}

TEST(NgramIndexTest, FindsWhatASearchOfAllFinds) {
  std::mt19937 random(3);
  NgramIndex index;
  Tokens text;
  for (int turn = 0; turn < 200; ++turn) {
    Tokens more(1 + random() % 5);
    for (int32_t& token : more) token = static_cast<int32_t>(random() % 12);
    text.insert(text.end(), more.begin(), more.end());
    index.Append(more);
    const NgramIndex::Match match = index.Find(text);
    // Each pair of twelve tokens has occurred so rarely that all places are looked at.
    int32_t longest = 0, last = 0;
    for (size_t end = 1; end + 1 < text.size(); ++end) {
      int32_t length = 0;
      while (length < NgramIndex::kLongest && length <= static_cast<int32_t>(end) &&
             text[end - length] == text[text.size() - 1 - length]) {
        ++length;
      }
      if (length >= longest) longest = length, last = static_cast<int32_t>(end);
    }
    EXPECT_EQ(match.length, longest < NgramIndex::kLeast ? 0 : longest);
    if (match.length > 0) {
      EXPECT_EQ(match.end, last);
    }
  }
}

}  // namespace
}  // namespace lm
