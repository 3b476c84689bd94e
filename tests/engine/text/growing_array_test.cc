#include "engine/text/growing_array.h"

#include <gtest/gtest.h>

#include <numeric>

namespace lm {
namespace {

TEST(GrowingArrayTest, KeepsWhatItHasWhileItGrows) {
  GrowingArray<int> array;
  EXPECT_TRUE(array.empty());
  for (int i = 0; i < 100000; ++i) array.push_back(i);
  EXPECT_EQ(array.size(), 100000u);
  EXPECT_EQ(std::accumulate(array.begin(), array.end(), int64_t{0}), int64_t{99999} * 50000);
  array.pop_back();
  EXPECT_EQ(array.end()[-1], 99998);
  array.clear();
  EXPECT_TRUE(array.empty());
  array.push_back(7);
  for (int i = 0; i < 100; ++i) array.push_back(array[0]);  // an element of its own
  EXPECT_EQ(array[100], 7);
}

TEST(GrowingArrayTest, IsMoved) {
  GrowingArray<int> from, to;
  from.push_back(1);
  to.push_back(2);
  to = std::move(from);
  EXPECT_EQ(to.front(), 1);
  const GrowingArray<int> third = std::move(to);
  EXPECT_EQ(third[0], 1);
}

}  // namespace
}  // namespace lm
