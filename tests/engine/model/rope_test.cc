#include "engine/model/rope.h"

#include <gtest/gtest.h>

#include <cmath>

namespace lm {
namespace {

TEST(RopeTest, PairsTurnSlowerAndSlower) {
  const std::vector<double> frequencies = RopeFrequencies({.dim = 8, .base = 10000}, {});
  ASSERT_EQ(frequencies.size(), 4u);
  for (int i = 0; i < 4; ++i) EXPECT_DOUBLE_EQ(frequencies[i], std::pow(10.0, -i));
}

TEST(RopeTest, FactorsAndScaleDivide) {
  const std::vector<float> factors = {1, 2, 4, 8};
  const std::vector<double> frequencies =
      RopeFrequencies({.dim = 8, .base = 10000, .scale = 5}, factors);
  for (int i = 0; i < 4; ++i) {
    EXPECT_DOUBLE_EQ(frequencies[i], std::pow(10.0, -i) / factors[i] / 5);
  }
}

// A head of 128, base 10,000, trained on 4,096 tokens: pair 20 turns 36.7 times in them and pair 46
// 0.87 times, so that all up to 20 keep their speed and all from 46 on are slowed down whole.
TEST(RopeTest, YarnSlowsDownOnlyWhatTurnsSeldom) {
  RopeSpec rope = {.dim = 128, .base = 10000, .scale = 8};
  const std::vector<double> slow = RopeFrequencies(rope, {});
  rope.scale = 1;
  const std::vector<double> plain = RopeFrequencies(rope, {});
  rope.scale = 8;
  rope.yarn = YarnSpec{.original_context = 4096};
  const std::vector<double> yarn = RopeFrequencies(rope, {});
  for (int i = 0; i < 64; ++i) {
    if (i <= 20) {
      EXPECT_DOUBLE_EQ(yarn[i], plain[i]) << i;
    } else if (i >= 46) {
      EXPECT_DOUBLE_EQ(yarn[i], slow[i]) << i;
    } else {
      EXPECT_LT(yarn[i], plain[i]) << i;
      EXPECT_GT(yarn[i], slow[i]) << i;
    }
  }
}

}  // namespace
}  // namespace lm
