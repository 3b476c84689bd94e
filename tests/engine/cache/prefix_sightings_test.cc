#include "engine/cache/prefix_sightings.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace lm {
namespace {

std::vector<int32_t> Ascending(int64_t count, int32_t first) {
  std::vector<int32_t> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

TEST(PrefixSightingsTest, KnowsWholeBlocksThatPromptsBeganWith) {
  PrefixSightings sightings(32);
  std::vector<int32_t> prompt = Ascending(100, 5);
  EXPECT_EQ(sightings.See("a", prompt), 0);
  EXPECT_EQ(sightings.See("a", prompt), 96);
  EXPECT_EQ(sightings.See("b", prompt), 0);
  prompt[70] = 0;
  EXPECT_EQ(sightings.See("a", prompt), 64);
  EXPECT_EQ(sightings.See("a", Ascending(31, 5)), 0);
  // The same blocks behind others are another text.
  std::vector<int32_t> moved = Ascending(32, 500);
  moved.insert(moved.end(), prompt.begin(), prompt.begin() + 64);
  EXPECT_EQ(sightings.See("a", moved), 0);
}

TEST(PrefixSightingsTest, ForgetsWhatWasSeenLongAgo) {
  PrefixSightings sightings(1);
  EXPECT_EQ(sightings.See("a", Ascending(10, 0)), 0);
  EXPECT_EQ(sightings.See("a", Ascending(70000, 1000)), 0);
  EXPECT_EQ(sightings.See("a", Ascending(10, 0)), 10);  // the younger half is kept
  EXPECT_EQ(sightings.See("a", Ascending(70000, 100000)), 0);
  EXPECT_EQ(sightings.See("a", Ascending(70000, 200000)), 0);
  EXPECT_EQ(sightings.See("a", Ascending(10, 0)), 0);
}

}  // namespace
}  // namespace lm
