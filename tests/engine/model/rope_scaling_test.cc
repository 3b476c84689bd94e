// "Linear" scaling divides the positions, under each of the names that files have for it.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "tests/engine/model/run_model.h"
#include "tests/engine/model/small_model.h"

namespace lm {
namespace {

constexpr char kType[] = "llama.rope.scaling.type";
constexpr char kFactor[] = "llama.rope.scaling.factor";
constexpr char kOldFactor[] = "llama.rope.scale_linear";

// A model with weights that differ from each other, so that positions matter.
SmallModel Varied() {
  SmallModel model;
  model.fill = [](const std::string& name, uint64_t i) {
    if (name == "rope_freqs.weight") return 4.0f;
    const float value = std::sin(static_cast<float>(name.size() + 7 * i));
    return name.ends_with("norm.weight") ? value + 2 : value;
  };
  return model;
}

std::vector<float> Logits(const SmallModel& model) {
  auto loaded = model.Load({.device = "reference", .kv_bytes = 1 << 20});
  EXPECT_TRUE(loaded.ok()) << loaded.status();
  if (!loaded.ok()) return {};
  std::vector<int32_t> tokens(40);
  std::iota(tokens.begin(), tokens.end(), 100);
  TestSequence sequence = MakeSequence(tokens, 0);
  return Feed((*loaded)->language_model(), {&sequence}, {40});
}

TEST(RopeScalingTest, LinearDividesThePositions) {
  // Llama 3's divisors of the frequencies, all 4: the same angles by another way.
  SmallModel divided = Varied();
  divided.tensors["rope_freqs.weight"] = {{4}};
  const std::vector<float> expected = Logits(divided);
  ASSERT_NE(expected, Logits(Varied()));

  SmallModel linear = Varied();
  linear.Set(kType, std::string("linear"));
  linear.Set(kFactor, 4.0f);
  EXPECT_EQ(Logits(linear), expected);
}

TEST(RopeScalingTest, AFactorWithoutATypeIsLinear) {
  SmallModel linear = Varied();
  linear.Set(kType, std::string("linear"));
  linear.Set(kFactor, 4.0f);
  const std::vector<float> expected = Logits(linear);
  SmallModel no_type = Varied();
  no_type.Set(kFactor, 4.0f);
  EXPECT_EQ(Logits(no_type), expected);
  SmallModel old_key = Varied();
  old_key.Set(kOldFactor, 4.0f);
  EXPECT_EQ(Logits(old_key), expected);
  old_key.Set(kType, std::string("linear"));
  EXPECT_EQ(Logits(old_key), expected);
  SmallModel both = Varied();
  both.Set(kFactor, 4.0f);
  both.Set(kOldFactor, 8.0f);
  EXPECT_EQ(Logits(both), expected);
}

// OLMo 3 has the factor that follows from the scale; whatever a file has, that is the one.
TEST(RopeScalingTest, YarnsFactorsMayBeStated) {
  SmallModel yarn = Varied();
  yarn.Set(kType, std::string("yarn"));
  yarn.Set(kFactor, 8.0f);
  yarn.Set("llama.rope.scaling.original_context_length", uint32_t{16});
  const std::vector<float> expected = Logits(yarn);
  yarn.Set("llama.rope.scaling.yarn_attn_factor", 1.2079441541679836f);
  yarn.Set("llama.rope.scaling.yarn_ext_factor", 1.0f);
  EXPECT_EQ(Logits(yarn), expected);
  yarn.Set("llama.rope.scaling.yarn_attn_factor", 1.3f);
  EXPECT_EQ(Logits(yarn), expected);
  yarn.Set("llama.rope.scaling.yarn_ext_factor", 0.5f);
  EXPECT_FALSE(yarn.Load().ok());
}

TEST(RopeScalingTest, AnOriginalContextOfZeroIsNoneOfYarns) {
  SmallModel yarn = Varied();
  yarn.Set(kType, std::string("yarn"));
  yarn.Set(kFactor, 8.0f);
  const std::vector<float> expected = Logits(yarn);
  yarn.Set("llama.rope.scaling.original_context_length", uint32_t{0});
  EXPECT_EQ(Logits(yarn), expected);
  yarn.Set("llama.rope.scaling.original_context_length", uint32_t{16});
  EXPECT_NE(Logits(yarn), expected);
}

TEST(RopeScalingTest, EveryContextIsLongerThanZeroTokens) {
  SmallModel longrope = Varied();
  const auto fill = longrope.fill;
  longrope.fill = [fill](const std::string& name, uint64_t i) {
    if (name == "rope_factors_long.weight") return 4.0f;
    return name == "rope_factors_short.weight" ? 2.0f : fill(name, i);
  };
  longrope.Set(kType, std::string("longrope"));
  longrope.tensors["rope_factors_long.weight"] = {{4}};
  longrope.tensors["rope_factors_short.weight"] = {{4}};
  const std::vector<float> by_short = Logits(longrope);
  longrope.Set("llama.rope.scaling.original_context_length", uint32_t{16});
  const std::vector<float> by_long = Logits(longrope);
  ASSERT_NE(by_long, by_short);
  longrope.Set("llama.rope.scaling.original_context_length", uint32_t{0});
  EXPECT_EQ(Logits(longrope), by_long);
}

TEST(RopeScalingTest, NoneAndZeroAndOneScaleNothing) {
  const std::vector<float> expected = Logits(Varied());
  for (float factor : {0.0f, 1.0f}) {
    SmallModel model = Varied();
    model.Set(kFactor, factor);
    EXPECT_EQ(Logits(model), expected) << factor;
  }
  SmallModel none = Varied();
  none.Set(kType, std::string("none"));
  none.Set(kFactor, 4.0f);
  EXPECT_EQ(Logits(none), expected);
  SmallModel no_factor = Varied();
  no_factor.Set(kType, std::string("linear"));
  EXPECT_EQ(Logits(no_factor), expected);
}

}  // namespace
}  // namespace lm
