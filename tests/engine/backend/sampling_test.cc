#include "engine/backend/sampling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <random>

namespace lm {
namespace {

int32_t Pick(const SamplingOptions& options, const std::vector<float>& logits,
             const std::vector<int32_t>& context = {}, const std::vector<uint64_t>& allowed = {}) {
  const auto token =
      SampleToken(logits, {.options = options, .context = context, .allowed = allowed});
  EXPECT_TRUE(token.ok()) << token.status();
  return token.value_or(-1);
}

// How often each token comes at positions 0, 1, 2, ...
std::map<int32_t, int> Count(const SamplingOptions& options, const std::vector<float>& logits,
                             int draws) {
  std::map<int32_t, int> counts;
  std::vector<int32_t> context;
  for (int i = 0; i < draws; ++i) {
    ++counts[Pick(options, logits, context)];
    context.push_back(0);
  }
  return counts;
}

std::vector<int32_t> Kept(const SamplingOptions& options, const std::vector<float>& logits) {
  std::vector<int32_t> tokens;
  for (const auto& [token, count] : Count(options, logits, 2000)) tokens.push_back(token);
  return tokens;
}

std::vector<float> LogOf(const std::vector<double>& probabilities) {
  std::vector<float> logits;
  for (double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
  return logits;
}

TEST(SamplingTest, GreedyTakesTheGreatestAndTheLowestOfEquals) {
  EXPECT_EQ(Pick({}, {1, 3, 2}), 1);
  EXPECT_EQ(Pick({}, {1, 3, 3, 0, 3}), 1);
  EXPECT_EQ(Pick({.logit_bias = {{4, 0.0}}}, {1, 3, 3, 0, 3}), 1);
  EXPECT_EQ(Pick({}, {-5}), 0);
  EXPECT_EQ(Pick({}, {-3, -1, -2, -1}), 1);
  EXPECT_EQ(Pick({}, {-1, -0.0f, 0, 0}), 1);
}

TEST(SamplingTest, LogitsThatAreNotFiniteAreAnError) {
  for (float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                    -std::numeric_limits<float>::infinity()}) {
    std::vector<float> logits(100, 1.0f);
    logits[37] = bad;
    const auto token = SampleToken(logits, {});
    EXPECT_EQ(token.status().code(), absl::StatusCode::kInternal);
    EXPECT_NE(token.status().message().find("token 37"), absl::string_view::npos);
  }
  // With a mask, in the words that allow a token; the others may not have been computed.
  for (size_t bad = 0; bad < 200; ++bad) {
    std::vector<float> logits(200, 1.0f);
    logits[bad] = NAN;
    const std::vector<uint64_t> allowed = {0, 5, 0, 1};
    const bool looked_at = allowed[bad / 64] != 0;
    EXPECT_EQ(SampleToken(logits, {.allowed = allowed}).ok(), !looked_at) << bad;
  }
  EXPECT_TRUE(CheckFinite({std::numeric_limits<float>::max(), 1e-45f, -0.0f}).ok());
}

TEST(SamplingTest, BiasIsAdded) {
  EXPECT_EQ(Pick({.logit_bias = {{0, 2.5}}}, {1, 3, 2}), 0);
  EXPECT_EQ(Pick({.logit_bias = {{1, -1e308}, {1, -1e308}}}, {1, 3, 2}), 2);
}

TEST(SamplingTest, RepeatPenaltyLooksAtTheLast64Tokens) {
  SamplingOptions options{.repeat_penalty = 2};
  EXPECT_EQ(Pick(options, {4, 3}, {0}), 1);
  EXPECT_EQ(Pick(options, {4, 3}, {0, 1}), 0);
  EXPECT_EQ(Pick(options, {-1, -1.5}, {0}), 1);  // a negative logit goes down too
  std::vector<int32_t> context(64, 1);
  context.insert(context.begin(), 0);
  EXPECT_EQ(Pick(options, {4, 3, 0}, context), 0);  // token 0 stands 65 back
  context.erase(context.end() - 1);
  EXPECT_EQ(Pick(options, {4, 3, 2.5}, context), 2);
  options.repeat_penalty = 1e-300;  // quotients that would be infinite
  options.temperature = 1;
  EXPECT_EQ(Pick(options, {4, 3}, {1}), 1);
}

TEST(SamplingTest, DependsOnSeedAndPositionOnly) {
  std::vector<float> logits(500);
  std::mt19937 random(1);
  for (float& l : logits) l = std::uniform_real_distribution<float>(-3, 3)(random);
  SamplingOptions options{.temperature = 1, .seed = 7};
  std::vector<int32_t> first, again, other;
  for (int position = 0; position < 50; ++position) {
    const std::vector<int32_t> context(position, 3), another(position, 4);
    first.push_back(Pick(options, logits, context));
    again.push_back(Pick(options, logits, another));
    SamplingOptions reseeded = options;
    reseeded.seed = 8;
    other.push_back(Pick(reseeded, logits, context));
  }
  EXPECT_EQ(first, again);
  EXPECT_NE(first, other);
  EXPECT_NE(first, std::vector<int32_t>(50, first[0]));
}

TEST(SamplingTest, FrequenciesFollowTheDistribution) {
  const std::vector<float> logits = {1.0f, 0.0f, -1.0f, 2.0f, 0.5f};
  for (double temperature : {0.5, 1.0, 2.0}) {
    for (int32_t top_k : {0, 5, 3}) {
      const int draws = 20000;
      const SamplingOptions options{.temperature = temperature, .top_k = top_k, .seed = 11};
      std::map<int32_t, int> counts = Count(options, logits, draws);
      std::vector<double> expected;
      double sum = 0;
      for (float l : logits) {
        const bool kept = top_k != 3 || l >= 0.5f;
        expected.push_back(kept ? std::exp(l / temperature) : 0);
        sum += expected.back();
      }
      double chi_squared = 0;
      for (size_t i = 0; i < expected.size(); ++i) {
        const double e = expected[i] / sum * draws;
        if (e == 0) {
          EXPECT_EQ(counts[i], 0);
        } else {
          chi_squared += (counts[i] - e) * (counts[i] - e) / e;
        }
      }
      EXPECT_LT(chi_squared, 18.5) << temperature << " " << top_k;  // 4 degrees: p = 0.001
    }
  }
}

TEST(SamplingTest, TopKKeepsTheKGreatestTiesToTheLowerId) {
  const std::vector<float> logits = {1, 2, 2, 2, 0};
  EXPECT_EQ(Kept({.temperature = 1, .top_k = 2}, logits), (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(Kept({.temperature = 1, .top_k = 1}, logits), (std::vector<int32_t>{1}));
  EXPECT_EQ(Kept({.temperature = 1, .top_k = 99}, logits), (std::vector<int32_t>{0, 1, 2, 3, 4}));
}

TEST(SamplingTest, TopPKeepsTheFewestThatReachIt) {
  const std::vector<float> logits = LogOf({0.1, 0.5, 0.15, 0.25});
  EXPECT_EQ(Kept({.temperature = 1, .top_p = 0.4}, logits), (std::vector<int32_t>{1}));
  EXPECT_EQ(Kept({.temperature = 1, .top_p = 0.6}, logits), (std::vector<int32_t>{1, 3}));
  EXPECT_EQ(Kept({.temperature = 1, .top_p = 0.8}, logits), (std::vector<int32_t>{1, 2, 3}));
  EXPECT_EQ(Kept({.temperature = 1, .top_p = 1e-9}, logits), (std::vector<int32_t>{1}));
  // Of the two that top_k leaves, 0.5 : 0.25, the first one alone has two thirds.
  EXPECT_EQ(Kept({.temperature = 1, .top_k = 2, .top_p = 0.65}, logits), (std::vector<int32_t>{1}));
}

TEST(SamplingTest, MinPKeepsWhatIsNotTooUnlikely) {
  const std::vector<float> logits = LogOf({0.1, 0.5, 0.15, 0.25});
  EXPECT_EQ(Kept({.temperature = 1, .min_p = 0.29}, logits), (std::vector<int32_t>{1, 2, 3}));
  EXPECT_EQ(Kept({.temperature = 1, .min_p = 0.45}, logits), (std::vector<int32_t>{1, 3}));
  EXPECT_EQ(Kept({.temperature = 1, .min_p = 1}, logits), (std::vector<int32_t>{1}));
  EXPECT_EQ(Kept({.temperature = 1, .top_p = 0.6, .min_p = 0.1}, logits),
            (std::vector<int32_t>{1, 3}));
}

TEST(SamplingTest, FiltersDoNotChangeTheProportions) {
  const int draws = 20000;
  auto counts =
      Count({.temperature = 1, .top_p = 0.7, .seed = 3}, LogOf({0.1, 0.5, 0.15, 0.25}), draws);
  EXPECT_NEAR(counts[1], draws * 2.0 / 3, 300);
  EXPECT_NEAR(counts[3], draws * 1.0 / 3, 300);
}

TEST(SamplingTest, WhatTheMaskExcludesDoesNotExist) {
  std::vector<float> logits(130, 0.0f);
  logits[3] = 9;
  logits[70] = 5;
  logits[129] = 5;
  const std::vector<uint64_t> allowed = {uint64_t{1} << 1, uint64_t{1} << 6, uint64_t{1} << 1};
  EXPECT_EQ(Pick({}, logits), 3);
  EXPECT_EQ(Pick({}, logits, {}, allowed), 70);  // of equals, the lowest
  EXPECT_EQ(Pick({.logit_bias = {{3, 50.0}, {129, 1.0}}}, logits, {}, allowed), 129);
  EXPECT_EQ(Pick({.repeat_penalty = 10}, logits, {70, 3}, allowed), 129);
  EXPECT_EQ(Pick({.temperature = 1, .top_k = 1}, logits, {}, allowed), 70);
  std::map<int32_t, int> counts;
  std::vector<int32_t> context;
  for (int i = 0; i < 4000; ++i, context.push_back(0)) {
    ++counts[Pick({.temperature = 5, .seed = 4}, logits, context, allowed)];
  }
  EXPECT_EQ(counts.size(), 3u);
  const double sum = 1 + 2 * std::exp(1);
  EXPECT_NEAR(counts[1], 4000 / sum, 120);
  EXPECT_NEAR(counts[70], 4000 * std::exp(1) / sum, 120);
}

TEST(SamplingTest, ExtremeTemperaturesAreHarmless) {
  EXPECT_EQ(Pick({.temperature = 1e-300}, {1, 3, 2}), 1);
  const auto counts = Count({.temperature = 1e300}, {-100, 100}, 1000);
  EXPECT_EQ(counts.size(), 2u);
}

}  // namespace
}  // namespace lm
