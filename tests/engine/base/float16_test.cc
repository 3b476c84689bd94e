#include "engine/base/float16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace lm {
namespace {

TEST(Float16Test, EveryHalfSurvivesTheRoundTrip) {
  for (uint32_t h = 0; h < 0x10000; ++h) {
    float f = HalfToFloat(static_cast<uint16_t>(h));
    if (std::isnan(f)) {
      EXPECT_TRUE(std::isnan(HalfToFloat(FloatToHalf(f))));
    } else {
      EXPECT_EQ(FloatToHalf(f), h) << f;
    }
  }
}

TEST(Float16Test, RoundsToNearestEven) {
  EXPECT_EQ(FloatToHalf(1.0f + 0x1p-11f), FloatToHalf(1.0f));                // tie, even below
  EXPECT_EQ(HalfToFloat(FloatToHalf(1.0f + 3 * 0x1p-11f)), 1.0f + 0x1p-9f);  // tie, even above
  EXPECT_EQ(HalfToFloat(FloatToHalf(65504.0f)), 65504.0f);
  EXPECT_EQ(FloatToHalf(65520.0f), 0x7c00);  // rounds to infinity
  EXPECT_EQ(HalfToFloat(FloatToHalf(0x1p-24f)), 0x1p-24f);
  EXPECT_EQ(FloatToHalf(0x1p-26f), 0);
}

#if defined(__FLT16_MAX__)
#if defined(__aarch64__)
using CompilersHalf = __fp16;  // gcc 12 has no _Float16 in C++ there
#else
using CompilersHalf = _Float16;
#endif

TEST(Float16Test, AgreesWithTheCompiler) {
  for (uint64_t i = 0; i < 2000000; ++i) {
    uint32_t bits = static_cast<uint32_t>(i * 2654435761u);
    float f = std::bit_cast<float>(bits);
    if (std::isnan(f)) continue;
    EXPECT_EQ(FloatToHalf(f), std::bit_cast<uint16_t>(static_cast<CompilersHalf>(f))) << f;
  }
}
#endif

}  // namespace
}  // namespace lm
