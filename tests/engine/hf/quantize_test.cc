// The encoders, through the decoders that define the formats: how far the values come back from
// those that went in, and that no block is a special case.
#include "engine/convert/quantize.h"

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "engine/gguf/block_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lm {
namespace {

std::vector<float> ThereAndBack(DType dtype, const std::vector<float>& values,
                                const std::vector<float>& weights = {}) {
  std::string blocks(RowBytes(dtype, static_cast<int64_t>(values.size())), '\0');
  QuantizeRow(dtype, values, weights.empty() ? std::vector<float>(values.size(), 1) : weights,
              blocks.data());
  std::vector<float> back(values.size());
  DequantizeRow(dtype, blocks.data(), static_cast<int64_t>(values.size()), back.data());
  return back;
}

// Of the root of the mean square, relative to the values'.
double Error(const std::vector<float>& values, const std::vector<float>& back) {
  double off = 0, all = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    off += (values[i] - back[i]) * (values[i] - back[i]);
    all += values[i] * values[i];
  }
  return std::sqrt(off / all);
}

std::vector<float> Gaussian(size_t count, float mean = 0) {
  std::mt19937 rng(1);
  std::normal_distribution<float> draw(mean, 1);
  std::vector<float> values(count);
  for (float& value : values) value = draw(rng);
  return values;
}

// Errors go where they weigh little.
TEST(QuantizeWeightsTest, HeavyColumnsComeBackCloser) {
  const std::vector<float> values = Gaussian(1 << 14);
  std::vector<float> weights(values.size(), 0.01f), heavy = values;
  for (size_t i = 0; i < weights.size(); i += 4) weights[i] = 1;
  auto keep_heavy = [](std::vector<float> v) {
    for (size_t i = 0; i < v.size(); ++i) v[i] = i % 4 == 0 ? v[i] : 0;
    return v;
  };
  heavy = keep_heavy(values);
  for (const DType dtype : {DType::kQ4_0, DType::kQ5_0, DType::kQ4_K, DType::kQ6_K}) {
    const double plain = Error(heavy, keep_heavy(ThereAndBack(dtype, values)));
    const double weighed = Error(heavy, keep_heavy(ThereAndBack(dtype, values, weights)));
    EXPECT_LT(weighed, 0.95 * plain) << Traits(dtype).name;
  }
}

struct Case {
  DType dtype;
  double error;  // a hundredth more than measured, or less
};

class QuantizeTest : public ::testing::TestWithParam<Case> {};

TEST_P(QuantizeTest, ComesBackCloseToGaussianValues) {
  const std::vector<float> values = Gaussian(1 << 16);
  const double error = Error(values, ThereAndBack(GetParam().dtype, values));
  EXPECT_LT(error, GetParam().error);
  EXPECT_GT(error, GetParam().error * 0.9);
}

TEST_P(QuantizeTest, KeepsZerosConstantsAndSingleValues) {
  const DType dtype = GetParam().dtype;
  const std::vector<float> zeros(256, 0.0f);
  EXPECT_EQ(ThereAndBack(dtype, zeros), zeros);
  for (const float one : {1.0f, -1.0f, 3e4f, -0.02f}) {
    EXPECT_LT(
        Error(std::vector<float>(256, one), ThereAndBack(dtype, std::vector<float>(256, one))),
        0.01)
        << one;
    std::vector<float> single = zeros;
    single[77] = one;
    EXPECT_LT(Error(single, ThereAndBack(dtype, single)), 0.01) << one;
  }
  // Too small for any scale: nothing but zeros can come back, and no NaN.
  for (const float back : ThereAndBack(dtype, std::vector<float>(256, 1e-40f))) {
    EXPECT_LT(std::fabs(back), 1e-7f);
  }
}

// Not as zeros, nor as any other number: its block's scale is infinite, which is refused.
TEST_P(QuantizeTest, WhatIsBeyondTheTypeIsSeen) {
  const DType dtype = GetParam().dtype;
  if (dtype == DType::kBF16) return;  // has F32's range
  for (const float most : {1e12f, 2e20f, 1e30f, std::numeric_limits<float>::max()}) {
    std::vector<float> values(256, 1.0f);
    for (size_t i = 0; i < values.size(); i += 2) values[i] = most;
    values[7] = -most;
    std::string blocks(RowBytes(dtype, 256), '\0');
    QuantizeRow(dtype, values, std::vector<float>(256, 1), blocks.data());
    EXPECT_FALSE(CheckFinite(dtype, blocks.data(), 256, 0).ok()) << most;
  }
}

TEST_P(QuantizeTest, WhatItMadeStaysAsItIs) {
  const std::vector<float> once = ThereAndBack(GetParam().dtype, Gaussian(4096));
  EXPECT_LT(Error(once, ThereAndBack(GetParam().dtype, once)), 0.02);
}

INSTANTIATE_TEST_SUITE_P(Types, QuantizeTest,
                         ::testing::Values(Case{DType::kF16, 0.00022}, Case{DType::kBF16, 0.0017},
                                           Case{DType::kQ8_0, 0.0055}, Case{DType::kQ6_K, 0.0171},
                                           Case{DType::kQ5_0, 0.041}, Case{DType::kQ4_0, 0.083},
                                           Case{DType::kQ4_K, 0.0708}),
                         [](const auto& info) {
                           return std::string(Traits(info.param.dtype).name);
                         });

}  // namespace
}  // namespace lm
