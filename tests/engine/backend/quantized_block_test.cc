#include "engine/backend/quantized_block.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/backend/quantize_to_codes.h"
#include "engine/base/float16.h"
#include "engine/gguf/block_format.h"
#include "tests/engine/backend/backend_fixture.h"

namespace lm {
namespace {

TEST(QuantizedBlockTest, IntegersTimesScalesAreTheDequantisedWeights) {
  Random random(1);
  for (DType dtype : WeightTypes()) {
    if (!Traits(dtype).quantised) continue;
    const QuantizedTraits& traits = GetQuantizedTraits(dtype);
    constexpr int kCols = 1024;
    Buffer blocks = RandomWeights(dtype, 1, kCols, &random);
    std::vector<float> wanted(kCols);
    DequantizeRow(dtype, blocks.data(), kCols, wanted.data());
    for (int i = 0; i < kCols; ++i) {
      QuantizedBlock block;
      DecodeQuantizedBlock(dtype, blocks.data(), i / 32, &block);
      int code = block.codes[i % 32];
      int half = i % 32 / 16;
      ASSERT_LT(code, 1 << traits.code_bits);
      int q = traits.table != nullptr ? traits.table[code] : code - traits.offset;
      float m = HalfToFloat(block.m_bits) * (block.negate_m ? -1.0f : 1.0f);
      float value = BlockScale(traits, block.d_bits) * block.scale[half] * q + m * block.min[half];
      ASSERT_EQ(value, wanted[i]) << Traits(dtype).name << " value " << i;
    }
  }
}

TEST(ActivationBlockTest, RoundsToNearestOfAScaleOfTheLargest) {
  float x[32] = {};
  x[3] = -254.0f;
  x[4] = 1.0f;  // half way between 0 and 1: to even
  x[5] = 3.0f;  // half way between 1 and 2: to even
  x[6] = 200.0f;
  int8_t q[32];
  EXPECT_EQ(QuantizeToInt8(x, 32, q), 2.0f);
  EXPECT_EQ(q[3], -127);
  EXPECT_EQ(q[4], 0);
  EXPECT_EQ(q[5], 2);
  EXPECT_EQ(q[6], 100);
  EXPECT_EQ(q[7], 0);
}

TEST(ActivationBlockTest, ZeroAndTinyBlocksAreZero) {
  for (float value : {0.0f, 1e-45f, 3e-37f}) {
    float x[32] = {value};
    int8_t q[32];
    EXPECT_EQ(QuantizeToInt8(x, 32, q), 0.0f);
    EXPECT_EQ(q[0], 0);
  }
}

TEST(ActivationBlockTest, OneBadValuePoisonsTheBlock) {
  for (float value : {INFINITY, -INFINITY, NAN}) {
    float x[32] = {1.0f, value};
    int8_t q[32];
    EXPECT_TRUE(std::isnan(QuantizeToInt8(x, 32, q)));
    EXPECT_EQ(q[0], 0);
  }
}

}  // namespace
}  // namespace lm
