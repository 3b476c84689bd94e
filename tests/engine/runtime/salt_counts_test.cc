#include "engine/runtime/salt_counts.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace lm {
namespace {

TEST(SaltCountsTest, EachSaltHasItsOwn) {
  SaltCounts<int> counts;
  ++counts.Of("a");
  ++counts.Of("a");
  ++counts.Of("b");
  EXPECT_EQ(counts.Get("a"), 2);
  EXPECT_EQ(counts.Get("b"), 1);
  EXPECT_EQ(counts.Get("c"), 0);
}

TEST(SaltCountsTest, WhoCountedNothingForTheLongestTimeMakesRoom) {
  constexpr int kMost = SaltCounts<int>::kMost;
  SaltCounts<int> counts;
  for (int i = 0; i < kMost; ++i) ++counts.Of(absl::StrCat(i));
  ++counts.Of("0");
  ++counts.Of("one more");
  EXPECT_EQ(counts.Get("0"), 2);
  EXPECT_EQ(counts.Get("1"), 0);
  EXPECT_EQ(counts.Get("2"), 1);
  EXPECT_EQ(counts.Get("one more"), 1);
}

}  // namespace
}  // namespace lm
