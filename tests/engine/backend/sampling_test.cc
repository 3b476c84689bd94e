#include "engine/backend/sampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <initializer_list>
#include <limits>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "engine/base/random.h"

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

TEST(DrawLawTest, WeightsAreExponentials) {
  EXPECT_EQ(WeightOf(0), kGreatestWeight);
  EXPECT_EQ(WeightOf(kFarthest), 0u);
  uint64_t before = 0;
  for (double below = kFarthest; below <= 0; below += 0.000917) {
    const uint64_t weight = WeightOf(below);
    EXPECT_NEAR(static_cast<double>(weight), std::ldexp(std::exp(below), kWeightBits), 0.6);
    EXPECT_GE(weight, before);
    before = weight;
  }
  EXPECT_EQ(BelowGreatest(1, 2, InverseTemperature(0)), kFarthest);
  EXPECT_EQ(BelowGreatest(2, 2, InverseTemperature(0)), 0);
  EXPECT_EQ(BelowGreatest(-1e300, 1e300, InverseTemperature(1e-300)), kFarthest);
}

TEST(DrawLawTest, BucketsAreInOrder) {
  int before = -1;
  for (uint64_t weight = 1; weight <= kGreatestWeight; weight += weight / 97 + 1) {
    const int bucket = BucketOf(weight);
    EXPECT_GE(bucket, before);
    EXPECT_GE(weight, LeastOfBucket(bucket));
    EXPECT_LT(weight, LeastOfBucket(bucket + 1));
    before = bucket;
  }
  EXPECT_EQ(BucketOf(kGreatestWeight), kNumBuckets - 1);
}

TEST(DrawLawTest, SharesOfASumAreRoundedUp) {
  EXPECT_EQ(ShareOf(0.5, 7), 4u);
  EXPECT_EQ(ShareOf(0.5, 8), 4u);
  EXPECT_EQ(ShareOf(1e-9, 8), 1u);
  EXPECT_EQ(ShareOf(1, ~uint64_t{0} >> 1), ~uint64_t{0} >> 1);
  EXPECT_EQ(ShareOf(0, kGreatestWeight), 1u);
  EXPECT_EQ(ShareOf(0.5, kGreatestWeight), kGreatestWeight / 2);
  EXPECT_EQ(ShareOf(1, kGreatestWeight), kGreatestWeight);
  EXPECT_EQ(TokenOfKey(DrawKey(kGreatestWeight, 8000000)), 8000000);
  EXPECT_EQ(WeightOfKey(DrawKey(kGreatestWeight, 8000000)), kGreatestWeight);
}

TEST(DrawLawTest, APlaceIsAShareOfTheTotal) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 1000; ++i) {
    const uint64_t bits = random(), total = random() >> random() % 64;
    EXPECT_EQ(DrawnPlace(bits, total),
              static_cast<uint64_t>(static_cast<unsigned __int128>(bits) * total >> 64));
  }
}

// What sampling.h says, and nothing else.
int32_t DrawBySorting(absl::Span<const float> logits, const SamplingRow& row) {
  std::vector<std::pair<double, int32_t>> all;  // minus the logit
  for (int32_t token = 0; token < static_cast<int32_t>(logits.size()); ++token) {
    if (!row.allowed.empty() && (row.allowed[token / 64] >> token % 64 & 1) == 0) continue;
    LogitAdjustment change = {0, token, 0};
    for (const auto& [biased, bias] : row.options.logit_bias) {
      if (biased == token) change.bias += bias;
    }
    const absl::Span<const int32_t> recent =
        row.context.last(std::min<size_t>(row.context.size(), kRepeatWindow));
    change.penalised = std::count(recent.begin(), recent.end(), token) > 0;
    all.push_back({-AdjustedLogit(logits[token], change, row.options.repeat_penalty), token});
  }
  const double greatest = -std::min_element(all.begin(), all.end())->first;
  if (row.options.temperature == 0) return std::min_element(all.begin(), all.end())->second;
  std::vector<uint64_t> keys;
  for (const auto& [logit, token] : all) {
    const double inverse = InverseTemperature(row.options.temperature);
    const uint64_t weight = WeightOf(BelowGreatest(-logit, greatest, inverse));
    if (weight > 0) keys.push_back(DrawKey(weight, token));
  }
  std::sort(keys.begin(), keys.end(), std::greater<uint64_t>());
  if (row.options.top_k > 0 && keys.size() > static_cast<size_t>(row.options.top_k)) {
    keys.resize(row.options.top_k);
  }
  auto sum = [&keys] {
    uint64_t total = 0;
    for (const uint64_t key : keys) total += WeightOfKey(key);
    return total;
  };
  if (row.options.top_p < 1) {
    const uint64_t needed = ShareOf(row.options.top_p, sum());
    uint64_t mass = 0;
    size_t kept = 0;
    while (mass < needed) mass += WeightOfKey(keys[kept++]);
    keys.resize(kept);
  }
  while (WeightOfKey(keys.back()) < ShareOf(row.options.min_p, kGreatestWeight)) keys.pop_back();
  std::sort(keys.begin(), keys.end(),
            [](uint64_t a, uint64_t b) { return TokenOfKey(a) < TokenOfKey(b); });
  uint64_t place = DrawnPlace(RandomBits(row.options.seed, row.context.size()), sum());
  for (const uint64_t key : keys) {
    if (place < WeightOfKey(key)) return TokenOfKey(key);
    place -= WeightOfKey(key);
  }
  return -1;
}

TEST(SamplingTest, DrawsWhatSortingEverythingDraws) {
  std::mt19937 random(5);
  auto one_of = [&random](std::initializer_list<double> values) {
    return values.begin()[random() % values.size()];
  };
  DrawScratch scratch;
  for (int turn = 0; turn < 6000; ++turn) {
    const auto tokens = static_cast<int32_t>(one_of({1, 2, 63, 64, 65, 300, 2000}));
    std::vector<float> logits(tokens);
    const double spread = one_of({0, 1e-6, 0.01, 1, 3, 50});
    for (float& l : logits)
      l = static_cast<float>(std::normal_distribution<>(0, 1)(random) * spread);
    if (turn % 3 == 0) {
      for (float& l : logits) l = std::round(l);  // ties
    }
    std::vector<uint64_t> mask((tokens + 63) / 64);
    for (uint64_t& word : mask) word = random() % 3 == 0 ? 0 : uint64_t{random()} << 32 | random();
    mask.back() &= ~uint64_t{0} >> (mask.size() * 64 - tokens);
    mask[0] |= 1;
    std::vector<int32_t> context(random() % 100);
    for (int32_t& token : context) token = static_cast<int32_t>(random() % tokens);
    std::vector<std::pair<int32_t, double>> biases;
    for (size_t i = random() % 4; i > 0; --i) {
      biases.push_back({random() % tokens, one_of({-1e9, -2, 1, 30})});
    }
    SamplingRow row = {.options = {.repeat_penalty = one_of({1, 1, 1.3, 0.7}),
                                   .temperature = one_of({0, 0.01, 0.8, 1, 3, 1e5, 1e9}),
                                   .top_k = static_cast<int32_t>(one_of({0, 0, 1, 2, 40, 1000})),
                                   .top_p = one_of({1, 1, 0.95, 0.5, 1e-6}),
                                   .min_p = one_of({0, 0, 0.05, 0.5, 1e-11}),
                                   .seed = random()},
                       .context = context};
    if (turn % 2 == 0) row.options.logit_bias = biases;
    if (turn % 4 < 2) row.allowed = mask;
    const absl::StatusOr<int32_t> token = SampleToken(logits, row, &scratch);
    ASSERT_TRUE(token.ok()) << token.status();
    ASSERT_EQ(*token, DrawBySorting(logits, row)) << turn;
  }
}

TEST(SamplingTest, ExtremeTemperaturesAreHarmless) {
  EXPECT_EQ(Pick({.temperature = 1e-300}, {1, 3, 2}), 1);
  const auto counts = Count({.temperature = 1e300}, {-100, 100}, 1000);
  EXPECT_EQ(counts.size(), 2u);
}

}  // namespace
}  // namespace lm
