#include "engine/runtime/cost_forecast.h"

#include <gtest/gtest.h>

#include "engine/runtime/engine_stats.h"

namespace lm {
namespace {

constexpr MachineCeilings kMachine = {
    .read_bytes_per_second = 1e9, .fp32_flops_per_second = 1e11, .int8_ops_per_second = 1e12};
constexpr ModelCost kModel = {.body_parameters = 100'000'000,
                              .body_bytes = 90'000'000,
                              .head_parameters = 10'000'000,
                              .head_bytes = 10'000'000};

TEST(CostForecastTest, WithoutAPastTheCeilingsAndAnAssumedShareCount) {
  const CostForecast forecast = Forecast(
      {.prefill_tokens = 1000, .answers = 1, .most_answer_tokens = 20}, {}, kModel, kMachine);
  EXPECT_FALSE(forecast.measured);
  EXPECT_EQ(forecast.answer_tokens, 20);
  // 2e8 operations a token at 1e12 a second; a step reads 1e8 bytes at 1e9 a second.
  EXPECT_NEAR(absl::ToDoubleSeconds(forecast.prefill.value()), 0.2 / 0.4, 1e-9);
  EXPECT_NEAR(absl::ToDoubleSeconds(forecast.decode.value()), 20 * 0.1 / 0.4, 1e-9);
}

TEST(CostForecastTest, AttentionTakesLongerTheMoreIsSeen) {
  ModelCost model = kModel;
  model.attention = {{.window = 0, .operations = 1000}, {.window = 50, .operations = 400}};
  const auto seconds = [&model](int64_t begin, int64_t end, const EngineStats& stats) {
    const PlannedWork work = {.prefill_tokens = end - begin, .positions = PositionsOf(begin, end)};
    return absl::ToDoubleSeconds(Forecast(work, stats, model, kMachine).prefill.value());
  };
  // A token's products take 0.2 ms, each position that it sees 10 ns, 50 of them 4 ns more.
  EXPECT_NEAR(seconds(0, 1000, {}), (0.2 + 500'500 * 1e-8 + 50'000 * 4e-9) / 0.4, 1e-9);
  EXPECT_NEAR(seconds(9000, 10000, {}), (0.2 + 9'500'500 * 1e-8 + 50'000 * 4e-9) / 0.4, 1e-9);
  EXPECT_NEAR(seconds(0, 10, {}), (0.002 + 55 * 1.4e-8) / 0.4, 1e-12);
  model.attention_speed = 2;
  EXPECT_NEAR(seconds(0, 10, {}), (0.002 + 55 * 0.7e-8) / 0.4, 1e-12);
  model.attention_speed = 1;
  // What short prompts took tells of long ones, too.
  EngineStats stats;
  stats.tokens_prefilled = 1000;
  stats.prefill_work.positions = 1000 * PositionsOf(0, 1);
  stats.prefill_time = absl::Seconds(0.400028);  // twice what is possible
  EXPECT_NEAR(seconds(0, 10000, stats), 2 * (2 + 50'005'000 * 1e-8 + 500'000 * 4e-9), 1e-4);
}

TEST(CostForecastTest, DecodedTokensReadWhatTheySee) {
  ModelCost model = kModel;
  model.attention = {{.window = 0, .operations = 100'000, .bytes = 20'000},
                     {.window = 50, .operations = 0, .bytes = 10'000}};
  const auto seconds = [&model](double positions, double reads, const EngineStats& stats) {
    const PlannedWork work = {.answers = 1,
                              .most_answer_tokens = 10,
                              .most_answer_positions = positions,
                              .most_answer_reads = reads};
    return absl::ToDoubleSeconds(Forecast(work, stats, model, kMachine).decode.value());
  };
  // A token reads 1e8 bytes of weights at 1e9 a second, 20,000 for each position that it sees and
  // 10,000 for 50 of them, and has 1 us of arithmetic for each.
  EXPECT_NEAR(seconds(1e5, 1e5, {}), (10 * 0.1 + 1e5 * 2e-5 + 500 * 1e-5 + 1e5 * 1e-6) / 0.4, 1e-9);
  // What rows share is read once, and is arithmetic for each.
  EXPECT_NEAR(seconds(1e5, 1e4, {}), (10 * 0.1 + 1e4 * 2e-5 + 500 * 1e-5 + 1e5 * 1e-6) / 0.4, 1e-9);
  EngineStats stats;  // short contexts, at half of what is possible
  stats.decode_steps = stats.tokens_decoded = 100;
  stats.decode_work = {.operations = 0, .bytes = 1e10, .positions = 100};
  stats.decode_time = absl::Seconds(2 * (10 + 100 * 1e-6));
  EXPECT_NEAR(seconds(1e5, 1e5, stats), 2 * (10 * 0.1 + 1e5 * 2e-5 + 500 * 1e-5 + 1e5 * 1e-6),
              1e-9);
}

TEST(CostForecastTest, DecodedTokensReadTheirStates) {
  ModelCost model = kModel;
  model.state_bytes = 30'000'000;
  const PlannedWork work = {.answers = 4, .most_answer_tokens = 40};
  EXPECT_NEAR(absl::ToDoubleSeconds(Forecast(work, {}, model, kMachine).decode.value()),
              (10 * 0.1 + 40 * 0.03) / 0.4, 1e-9);
}

// A prompt of 1,000 tokens, whose answer could have 100 and will have 10.
TEST(CostForecastTest, ShorterAnswersSeeLessOfThemselves) {
  ModelCost model = kModel;
  model.attention = {{.window = 0, .operations = 1'000'000, .bytes = 0}};
  EngineStats stats;
  stats.free_answers = 10;
  stats.free_answer_tokens = 100;
  const PlannedWork work = {.answers = 1,
                            .most_answer_tokens = 100,
                            .most_answer_positions = PositionsOf(1000, 1100),
                            .free_answers = 1,
                            .most_free_answer_tokens = 100};
  // Each position is 10 us; a row's own half token may be missing.
  EXPECT_NEAR(absl::ToDoubleSeconds(Forecast(work, stats, model, kMachine).decode.value()),
              (10 * 0.1 + PositionsOf(1000, 1010) * 1e-5) / 0.4, 1e-3);
}

TEST(CostForecastTest, RowsThatDecodeTogetherShareTheWeightsUntilArithmeticBindsThem) {
  const auto seconds = [](int64_t answers) {
    return absl::ToDoubleSeconds(
        Forecast({.answers = answers, .most_answer_tokens = 20 * answers}, {}, kModel, kMachine)
            .decode.value());
  };
  EXPECT_NEAR(seconds(8), seconds(1), 1e-9);
  // Beyond 64 there are more steps.
  EXPECT_NEAR(seconds(640), 10 * seconds(64), 1e-9);
  const ModelCost slow = {.body_parameters = 10'000'000'000, .body_bytes = 1};
  EXPECT_NEAR(
      absl::ToDoubleSeconds(
          Forecast({.answers = 4, .most_answer_tokens = 4}, {}, slow, kMachine).decode.value()),
      4 * 2e10 / 1e12 / 0.4, 1e-9);
}

TEST(CostForecastTest, TheEnginesOwnPastCounts) {
  EngineStats stats;
  stats.tokens_prefilled = 10000;
  stats.prefill_time = absl::Seconds(5);
  stats.decode_steps = 100;
  stats.decode_time = absl::Seconds(20);  // half of what the bandwidth allows
  stats.decode_work = {.operations = 0, .bytes = 1e10};
  stats.free_answers = 10;
  stats.free_answer_tokens = 70;
  const CostForecast forecast = Forecast({.prefill_tokens = 1000,
                                          .answers = 1,
                                          .most_answer_tokens = 20,
                                          .free_answers = 1,
                                          .most_free_answer_tokens = 20},
                                         stats, kModel, kMachine);
  EXPECT_TRUE(forecast.measured);
  EXPECT_EQ(forecast.answer_tokens, 7);  // as long as they were
  EXPECT_NEAR(absl::ToDoubleSeconds(forecast.prefill.value()), 0.5, 1e-9);
  EXPECT_NEAR(absl::ToDoubleSeconds(forecast.decode.value()), 7 * 0.1 / 0.5, 1e-9);
  const auto tokens = [&stats](int64_t answers, int64_t most, int64_t free, int64_t most_free) {
    return Forecast({.answers = answers,
                     .most_answer_tokens = most,
                     .free_answers = free,
                     .most_free_answer_tokens = most_free},
                    stats, kModel, kMachine)
        .answer_tokens;
  };
  EXPECT_EQ(tokens(2, 3, 2, 3), 3);
  // What follows a constraint is no longer or shorter for what others have said freely.
  EXPECT_EQ(tokens(3, 60, 2, 40), 20 + 14);
  EXPECT_EQ(tokens(1, 20, 0, 0), 20);
}

TEST(CostForecastTest, AnswersThatWereCutTellThatTheyAreLonger) {
  EngineStats stats;
  stats.free_answers = 3;
  stats.free_answer_tokens = 90;  // most of them of others, which never came to their end
  const PlannedWork work = {
      .answers = 1, .most_answer_tokens = 256, .free_answers = 1, .most_free_answer_tokens = 256};
  EXPECT_EQ(Forecast(work, stats, kModel, kMachine).answer_tokens, 30);
  stats.free_answers = 2;  // too few
  EXPECT_EQ(Forecast(work, stats, kModel, kMachine).answer_tokens, 256);
}

TEST(CostForecastTest, WithoutCeilingsOnlyAPastCanTell) {
  const PlannedWork work = {.prefill_tokens = 100, .answers = 1, .most_answer_tokens = 10};
  const CostForecast unknown = Forecast(work, {}, kModel, std::nullopt);
  EXPECT_FALSE(unknown.prefill.has_value());
  EXPECT_FALSE(unknown.decode.has_value());
  EngineStats stats;
  stats.tokens_prefilled = 1000;
  stats.prefill_time = absl::Seconds(1);
  stats.decode_steps = 50;
  stats.decode_time = absl::Seconds(4);
  stats.inter_token_latency.count = 400;
  const CostForecast known = Forecast(work, stats, kModel, std::nullopt);
  EXPECT_NEAR(absl::ToDoubleSeconds(known.prefill.value()), 0.1, 1e-9);
  EXPECT_NEAR(absl::ToDoubleSeconds(known.decode.value()), 0.1, 1e-9);
}

}  // namespace
}  // namespace lm
