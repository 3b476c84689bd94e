// What is guessed and what is not, on a scripted model; that answers stay the same on real ones is
// same_answers_test's.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/runtime/draft_model.h"
#include "engine/runtime/draft_odds.h"
#include "engine/runtime/engine.h"
#include "engine/runtime/mtp_drafter.h"
#include "engine/runtime/prompt_lookup.h"
#include "engine/runtime/step_costs.h"
#include "tests/engine/runtime/scripted_model.h"
#include "tests/testdata.h"

namespace lm {
namespace {

using Text = std::vector<int32_t>;

class SpeculationTest : public testing::Test {
 protected:
  // Steps that a model which wants to say `wish` takes for it.
  int64_t StepsFor(const std::string& prompt, const std::string& wish, GenerationOptions options) {
    script_->says = {{Bytes(prompt), Bytes(wish)}};
    if (engine_ == nullptr) engine_ = StartScripted(script_);
    script_->forwards = 0;
    const Generation result =
        Generate(*engine_, {.prompt = Bytes(prompt), .options = std::move(options)});
    EXPECT_TRUE(result.status.ok()) << result.status;
    EXPECT_EQ(result.text, wish);
    EXPECT_EQ(script_->violation(), "");
    return script_->forwards;
  }

  std::shared_ptr<Script> script_ = std::make_shared<Script>();
  std::shared_ptr<Engine> engine_;
};

TEST_F(SpeculationTest, AnAnswerThatRepeatsItsPromptTakesFewSteps) {
  const std::string text = "The quick brown fox jumps over the lazy dog. ";
  EXPECT_LE(StepsFor(text + "Again: The ", "quick brown fox jumps over the lazy dog.",
                     {.speculate = Speculate::kAlways}),
            5);
  const EngineStats stats = engine_->Stats();
  EXPECT_GE(stats.tokens_accepted, 36);
  EXPECT_GE(stats.tokens_drafted, stats.tokens_accepted);
  EXPECT_EQ(stats.steps_saved, stats.tokens_accepted);  // of one row
  EXPECT_EQ(stats.tokens_decoded, 41);
}

// However little room logits have for rows of so many.
TEST_F(SpeculationTest, AVocabularyOfAQuarterMillionIsGuessedLikeAnyOther) {
  script_->vocab_size = 256 << 10;
  const std::string text = "The quick brown fox jumps over the lazy dog. ";
  EXPECT_LE(StepsFor(text + "Again: The ", "quick brown fox jumps over the lazy dog.",
                     {.speculate = Speculate::kAlways}),
            5);
}

TEST_F(SpeculationTest, OffIsATokenAStep) {
  EXPECT_EQ(StepsFor("abcabcabc", "abcabcabc", {.speculate = Speculate::kOff}), 10);
  EXPECT_EQ(engine_->Stats().tokens_drafted, 0);
}

TEST_F(SpeculationTest, EarlierAnswersToTheSameDatabaseHelp) {
  const GenerationOptions options = {.speculate = Speculate::kAlways};
  EXPECT_EQ(StepsFor("mail? ", "netscape", options), 9);
  EXPECT_EQ(StepsFor("news? ", "netscape", options), 1);
}

TEST_F(SpeculationTest, WhatTheGrammarForcesIsPartOfAGuess) {
  const std::string schema =
      R"({"type":"array","minItems":3,"maxItems":3,"items":{"type":"object","required":["color"],
          "properties":{"color":{"enum":["red","rose","blue"]}},"additionalProperties":false}})";
  const std::string answer = R"([{"color":"rose"},{"color":"blue"},{"color":"rose"}])";
  GenerationOptions options = {.constraint = {AnswerConstraint::Kind::kSchema, schema},
                               .speculate = Speculate::kOff};
  const int64_t alone = StepsFor("colors: ", answer, options);
  EXPECT_EQ(alone, 5);  // r, o, b, r, o: all else is forced
  options.speculate = Speculate::kAlways;
  EXPECT_LE(StepsFor("colors: ", answer, options), 2);
}

TEST_F(SpeculationTest, AWrongGuessCostsItsPlaceOnly) {
  // What followed "ab" is never what follows it now.
  EXPECT_EQ(StepsFor("ab1ab2ab3", "ab4ab5ab6", {.speculate = Speculate::kAlways}), 10);
  EXPECT_GT(engine_->Stats().tokens_drafted, 0);
}

TEST_F(SpeculationTest, ASuppressedTokenIsNotSaidBecauseItIsGuessed) {
  script_->suppressed = {'c'};
  script_->says = {{Bytes("abcabcabc"), Bytes("abcabcabc")}};
  std::vector<Text> said;
  for (const Speculate speculate : {Speculate::kOff, Speculate::kAlways}) {
    engine_ = StartScripted(script_);
    said.push_back(Generate(*engine_, {.prompt = Bytes("abcabcabc"),
                                       .options = {.max_tokens = 40, .speculate = speculate}})
                       .tokens);
    EXPECT_EQ(said.back(), said[0]);
    EXPECT_EQ(std::count(said.back().begin(), said.back().end(), 'c'), 0);
    EXPECT_EQ(script_->violation(), "");
  }
  EXPECT_GE(said[0].size(), 3u);
  EXPECT_GT(engine_->Stats().tokens_drafted, 0);
}

TEST(StepCostsTest, LearnsEachSizeAndGuessesBetweenThem) {
  StepCosts costs;
  EXPECT_EQ(costs.Seconds(1, 0), 0);
  for (int i = 0; i < 20; ++i) {
    costs.Record(1, absl::Milliseconds(10));
    costs.Record(5, absl::Milliseconds(14));
  }
  EXPECT_NEAR(costs.Seconds(1, 0), 0.010, 1e-4);
  EXPECT_NEAR(costs.Seconds(3, 0), 0.012, 1e-4);
  EXPECT_NEAR(costs.Seconds(5, 0), 0.014, 1e-4);
  EXPECT_NEAR(costs.Seconds(7, 0.002), 0.018, 1e-4);
}

TEST(StepCostsTest, KnowsHowManyTokensATimeHasRoomFor) {
  StepCosts costs;
  EXPECT_EQ(costs.TokensWithin(1, 0), std::nullopt);
  for (int i = 0; i < 3; ++i) {
    costs.Record(1, absl::Milliseconds(10));
    costs.Record(65, absl::Milliseconds(138));  // two milliseconds a token
  }
  EXPECT_EQ(costs.TokensWithin(0.0501, 0.001), 21);
  EXPECT_EQ(costs.TokensWithin(0.0091, 0.001), 0);
  EXPECT_EQ(costs.TokensWithin(0.1401, 0.001), 67);
  EXPECT_EQ(costs.TokensWithin(10, 0.001), std::nullopt);
}

TEST(StepCostsTest, FollowsAMachineThatSlowsDownForAllSizes) {
  StepCosts costs;
  for (int i = 0; i < 50; ++i) {
    costs.Record(1, absl::Milliseconds(10));
    costs.Record(5, absl::Milliseconds(20));
  }
  for (int i = 0; i < 50; ++i) costs.Record(1, absl::Milliseconds(20));
  EXPECT_NEAR(costs.Seconds(1, 0), 0.020, 1e-3);
  EXPECT_GT(costs.Seconds(5, 0), 0.030);
}

TEST(StepCostsTest, AStepThatWasHeldUpSaysLittle) {
  StepCosts costs;
  for (int i = 0; i < 50; ++i) costs.Record(1, absl::Milliseconds(10));
  costs.Record(1, absl::Seconds(60));
  EXPECT_LT(costs.Seconds(1, 0), 0.013);
}

TEST(StepCostsTest, OneSlowStepOfASizeIsNotBelievedForLong) {
  StepCosts costs;
  for (int i = 0; i < 10; ++i) costs.Record(1, absl::Milliseconds(10));
  costs.Record(2, absl::Milliseconds(100));
  EXPECT_NEAR(costs.Seconds(2, 0.001), 0.100, 1e-3);
  for (int i = 0; i < 50; ++i) costs.Record(1, absl::Milliseconds(10));
  EXPECT_NEAR(costs.Seconds(2, 0.001), 0.011, 1e-3);
  // The better of what was seen stays, and for longer.
  costs.Record(2, absl::Milliseconds(12));
  for (int i = 0; i < 90; ++i) costs.Record(1, absl::Milliseconds(10));
  EXPECT_NEAR(costs.Seconds(2, 0.001), 0.012, 1e-3);
}

TEST(DraftOddsTest, AModelsNextTokenIsAsGoodAsTheOneBeforeUntilItIsAskedFor) {
  constexpr int32_t kFirst = ModelDrafter::kFirstKind;
  DraftOdds odds;
  for (int i = 0; i < 100; ++i) odds.Record(kFirst, false, i % 4 != 0);
  EXPECT_EQ(odds.Of(kFirst + 3, false), odds.Of(kFirst, false));
  odds.Record(kFirst + 1, false, false);
  EXPECT_LT(odds.Of(kFirst + 1, false), odds.Of(kFirst, false));
  EXPECT_EQ(odds.Of(kFirst + 3, false), odds.Of(kFirst + 1, false));
}

TEST(DraftOddsTest, AMarginIsAsGoodAsTheModelUntilItIsSeen) {
  constexpr int32_t kFirst = ModelDrafter::kFirstKind, kMargin = ModelDrafter::kFirstMarginKind;
  constexpr int32_t kLater = kMargin + ModelDrafter::kMarginKinds;
  DraftOdds odds;
  for (int i = 0; i < 100; ++i) odds.Record(kFirst, false, i % 4 != 0);
  EXPECT_EQ(odds.Of(kMargin + 2, false), odds.Of(kFirst, false));
  EXPECT_EQ(odds.Of(kLater + 2, false), odds.Of(kFirst, false));
  for (int i = 0; i < 50; ++i) {
    odds.Record(kMargin + 2, false, false);
    odds.Record(kMargin + 6, false, true);
  }
  EXPECT_LT(odds.Of(kMargin + 2, false), 0.1);
  EXPECT_GT(odds.Of(kMargin + 6, false), 0.9);
  // One further on is like the first with that margin.
  EXPECT_EQ(odds.Of(kLater + 6, false), odds.Of(kMargin + 6, false));
  EXPECT_EQ(odds.Of(kMargin + 4, false), odds.Of(kFirst, false));
  EXPECT_EQ(odds.Of(kMargin + 6, true), 0.5);
}

// How sure it is of each token, and no token more than is worth it.
TEST(DraftModelTest, GoesOnAsLongAsItIsWorthIt) {
  auto model = Model::Load(LM_TESTDATA "/models/qwen3-f32.gguf", {});
  ASSERT_TRUE(model.ok()) << model.status();
  const std::atomic<bool> cancel{false};
  LanguageModel& language_model = (*model)->language_model();
  DraftModel drafter(&language_model, language_model.vocab_size(), &cancel);
  Text all;
  for (const size_t longest : {5, 1, 3}) {
    std::unique_ptr<DraftMemory> memory;
    const Text context = {3, 50, 100, 7};
    DraftRow row{.context = context, .most = 5, .memory = &memory};
    std::vector<CacheOp> no_ops;
    drafter.Propose(
        absl::MakeSpan(&row, 1),
        [longest](const DraftRow& r) { return r.draft.tokens.size() < longest; }, &no_ops);
    ASSERT_EQ(row.draft.tokens.size(), longest);
    ASSERT_EQ(row.draft.margins.size(), longest);
    if (all.empty()) all = row.draft.tokens;
    EXPECT_EQ(row.draft.tokens, Text(all.begin(), all.begin() + longest));
    for (const float margin : row.draft.margins) EXPECT_GT(margin, 0);
  }
}

// The model's own layer knows what prompt lookup cannot: of a text in which nothing repeats.
TEST(MtpDrafterTest, GuessesWhatPromptLookupCannot) {
  int64_t drafted[2], accepted[2];
  std::vector<int32_t> tokens[2];
  for (const bool mtp : {false, true}) {
    auto model = Model::Load(LM_TESTDATA "/models/glm4moe-mtp-f32.gguf", {.mtp = mtp});
    ASSERT_TRUE(model.ok()) << model.status();
    const auto engine = Engine::Start(*std::move(model), {}).value();
    for (int32_t first = 3; first < 43; ++first) {
      const Generation answer =
          Generate(*engine, {.prompt = {first, first + 50, first + 100},
                             .options = {.max_tokens = 4, .speculate = Speculate::kAlways}});
      ASSERT_TRUE(answer.status.ok()) << answer.status;
      tokens[mtp].insert(tokens[mtp].end(), answer.tokens.begin(), answer.tokens.end());
    }
    drafted[mtp] = engine->Stats().tokens_drafted;
    accepted[mtp] = engine->Stats().tokens_accepted;
  }
  EXPECT_EQ(tokens[1], tokens[0]);
  EXPECT_GT(drafted[1], drafted[0]);
  EXPECT_GT(accepted[1], accepted[0] + 10);
}

// A cache of numbers, one a block, in which an operation fails.
class FailingCache : public LanguageModel {
 public:
  explicit FailingCache(int fails) : fails_(fails) {}
  int32_t vocab_size() const override { return 1; }
  int32_t hidden_size() const override { return 1; }
  int32_t context_length() const override { return 1000; }
  const CacheShape& cache() const override { return shape_; }
  absl::Status Run(ModelStep step, const std::atomic<bool>&, StepResults* results) override {
    results->cache_ops_left = std::move(step.cache_ops);
    for (std::vector<CacheOp>& left = results->cache_ops_left; !left.empty();) {
      if (fails_-- == 0) return absl::InternalError("the copy failed");
      blocks[left[0].to] = blocks[left[0].from];
      left.erase(left.begin());
    }
    results->tokens.assign(step.samples.size(), 0);
    results->hidden.assign(step.samples.size(), 0);
    return absl::OkStatus();
  }
  absl::Span<char> BlockMemory(int32_t, int32_t) override { return {}; }
  absl::Span<char> StateMemory(int32_t) override { return {}; }
  absl::StatusOr<std::vector<float>> ApplyHead(bool, absl::Span<const float>) override {
    return absl::UnimplementedError("no head");
  }

  std::vector<int> blocks = {10, 11, 12, 13};

 private:
  const CacheShape shape_ = CacheOf(4);
  int fails_;  // operations before the one that fails
};

// The next step of the model does what is left of them.
TEST(MtpDrafterTest, NoOperationOfTheCacheIsDoneTwice) {
  const std::vector<CacheOp> ops = {
      {.from = 0, .to = 1}, {.from = 2, .to = 0}, {.from = 3, .to = 2}};
  for (int fails = 0; fails <= 3; ++fails) {
    FailingCache model(fails);
    const std::atomic<bool> cancel{false};
    MtpDrafter drafter(&model, &cancel);
    const Text context = {0, 0};
    BlockTable blocks;
    blocks.blocks = {{3}};
    std::unique_ptr<DraftMemory> memory;
    drafter.Observe(/*position=*/0, std::vector<float>{0}, &memory);
    DraftRow row{.context = context, .most = 2, .blocks = &blocks, .memory = &memory};
    std::vector<CacheOp> left = ops;
    drafter.Propose(
        absl::MakeSpan(&row, 1), [](const DraftRow&) { return true; }, &left);
    EXPECT_EQ(row.draft.tokens.size(), fails < 3 ? 0u : 2u);
    EXPECT_EQ(left.size(), 3u - fails);
    StepResults results;
    ASSERT_TRUE(model.Run({.cache_ops = left}, cancel, &results).ok());
    EXPECT_EQ(model.blocks, (std::vector<int>{12, 10, 13, 13})) << fails;
  }
}

TEST(DraftOddsTest, FollowsWhatBecomesOfGuesses) {
  DraftOdds odds;
  EXPECT_EQ(odds.Of(3, false), 0.5);
  for (int i = 0; i < 100; ++i) odds.Record(3, false, i % 4 != 0);
  EXPECT_NEAR(odds.Of(3, false), 0.75, 0.03);
  EXPECT_EQ(odds.Of(3, true), 0.5);
  EXPECT_EQ(odds.Of(4, false), 0.5);
}

TEST(PromptLookupTest, KeepsTheAnswersOfASaltToItself) {
  PromptLookup lookup;
  const Text prompt = {1, 2, 3}, answer = {1, 2, 3, 7, 8, 9};
  lookup.Learn("one", answer, 3);
  for (const auto& [salt, expected] : {std::pair("one", Text{7, 8}), std::pair("two", Text{})}) {
    std::unique_ptr<DraftMemory> memory;
    DraftRow row{.salt = salt, .tokens = prompt, .context = prompt, .most = 2, .memory = &memory};
    lookup.Propose(absl::MakeSpan(&row, 1));
    EXPECT_EQ(row.draft.tokens, expected);
  }
}

}  // namespace
}  // namespace lm
