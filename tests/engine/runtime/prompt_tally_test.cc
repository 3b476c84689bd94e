// Counting what requests would cost, instead of making them.
#include "engine/runtime/prompt_tally.h"

#include <gtest/gtest.h>

#include "engine/runtime/local_generator.h"
#include "engine/runtime/session.h"
#include "tests/engine/runtime/scripted_model.h"

namespace lm {
namespace {

class PromptTallyTest : public testing::Test {
 protected:
  void Take(const std::string& prompt, int32_t max_tokens = 10) {
    Take(prompt, GenerationOptions{.max_tokens = max_tokens});
  }
  void Take(const std::string& prompt, const GenerationOptions& options) {
    auto request =
        tally_.Take(generator_, {.prompt = Bytes(prompt), .text = prompt, .options = options});
    ASSERT_TRUE(request.ok()) << request.status();
    ASSERT_TRUE((*request)->WaitFor(absl::ZeroDuration()));
    EXPECT_TRUE((*request)->result().status.ok());
    EXPECT_EQ((*request)->result().text, "");
  }

  std::shared_ptr<Script> script_ = std::make_shared<Script>();
  std::shared_ptr<Generator> generator_ = std::make_shared<LocalGenerator>(StartScripted(script_));
  PromptTally tally_;
};

TEST_F(PromptTallyTest, CountsWhatIsDifferentAndWhatIsShared) {
  EXPECT_TRUE(tally_.empty());
  Take("say: one");
  Take("say: two");
  Take("say: one");
  Take("ask");
  Take("say: twofold", 3);
  EXPECT_FALSE(tally_.empty());
  ASSERT_EQ(tally_.Count().size(), 1u);
  const PromptTally::Totals totals = tally_.Count()[0];
  EXPECT_EQ(totals.generator, generator_);
  EXPECT_EQ(totals.requests, 5);
  EXPECT_EQ(totals.prompts, 4);
  EXPECT_EQ(totals.tokens, 8 + 8 + 3 + 12);
  // "say: " of "say: two", all of "say: two" in "say: twofold".
  EXPECT_EQ(totals.tokens_shared, 5 + 8);
  // Each token that is computed sees those before it, whoever has computed them, and itself.
  EXPECT_EQ(totals.positions, (1 + 2 + 3) + 36 + (6 + 7 + 8) + (9 + 10 + 11 + 12));
  EXPECT_EQ(totals.answers, 4);
  EXPECT_EQ(totals.most_answer_tokens, 10 + 10 + 10 + 3);
  EXPECT_EQ(totals.most_answer_positions, 10 * (9 + 18) + 10 * (4 + 13) / 2 + (13 + 14 + 15));
  EXPECT_EQ(totals.most_answer_reads, totals.most_answer_positions - 10 * 5 - 3 * 8);
  EXPECT_EQ(generator_->engine()->Stats().requests, 0);
  EXPECT_EQ(script_->forwards, 0);
}

// What rows share is read once a step: once for as many as decode together.
TEST_F(PromptTallyTest, ReadsWhatIsSharedOnceForEveryStepsRows) {
  for (int i = 0; i < kMostSequences + 1; ++i) Take(std::string("0123456789") + char(40 + i));
  const PromptTally::Totals totals = tally_.Count()[0];
  EXPECT_EQ(totals.answers, kMostSequences + 1);
  // All but the first and the 65th share ten tokens with the one before them.
  EXPECT_EQ(totals.most_answer_reads,
            totals.most_answer_positions - (kMostSequences - 1) * 10 * 10);
}

TEST_F(PromptTallyTest, SharesNoMoreThanTheEngineWould) {
  // The same prompt twice is one; the engine computes the last token of a prompt in any case.
  Take("abc");
  Take("abcd");
  Take("abc");
  Take("ab");
  const PromptTally::Totals totals = tally_.Count()[0];
  EXPECT_EQ(totals.prompts, 3);
  EXPECT_EQ(totals.tokens_shared, 0 + 2 + 3);
  EXPECT_EQ(totals.positions, (1 + 2) + 3 + 4);
}

// What the memo tells apart is asked for twice, and computes little but the prompt's last token.
TEST_F(PromptTallyTest, AnEqualPromptAskedOtherwiseIsAnotherOne) {
  for (const uint64_t seed : {1, 2, 1, 3}) {
    Take("abc", {.max_tokens = 8, .temperature = 1, .seed = seed});
  }
  PromptTally::Totals totals = tally_.Count()[0];
  EXPECT_EQ(totals.requests, 4);
  EXPECT_EQ(totals.prompts, 3);
  EXPECT_EQ(totals.tokens, 3 * 3);
  EXPECT_EQ(totals.tokens_shared, 2 * 2);
  EXPECT_EQ(totals.positions, (1 + 2 + 3) + 3 + 3);
  EXPECT_EQ(totals.most_answer_tokens, 3 * 8);

  for (const bool longest_first : {false, true}) {
    tally_ = PromptTally();
    for (const bool first : {true, false}) Take("abc", first == longest_first ? 200 : 2);
    EXPECT_EQ(tally_.Count()[0].most_answer_tokens, 200 + 2);
  }
}

TEST_F(PromptTallyTest, WhatTheMemoDoesNotKeepIsAskedForEachTime) {
  for (int i = 0; i < 3; ++i) Take("abc", {.max_tokens = 8, .cache = false});
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(
        tally_.Take(generator_, {.prompt = Bytes("abc"), .text = "abc", .stream = true}).ok());
    ASSERT_TRUE(tally_.Take(generator_, {.prompt = Bytes("abc"), .score_prompt = true}).ok());
  }
  EXPECT_EQ(tally_.Count()[0].prompts, 3 + 2 + 2);
}

TEST_F(PromptTallyTest, EachGeneratorHasItsRow) {
  Take("one");
  std::shared_ptr<Generator> other =
      std::make_shared<LocalGenerator>(StartScripted(std::make_shared<Script>()));
  ASSERT_TRUE(tally_.Take(other, {.prompt = {1}}).ok());
  Take("two");
  const std::vector<PromptTally::Totals> totals = tally_.Count();
  ASSERT_EQ(totals.size(), 2u);
  EXPECT_EQ(totals[0].prompts, 2);
  EXPECT_EQ(totals[1].generator, other);
  EXPECT_EQ(totals[1].prompts, 1);
}

TEST_F(PromptTallyTest, AConstrainedAnswerIsOneThatCouldBe) {
  auto answer = [this](AnswerConstraint constraint) {
    const GenerationOptions options{.max_tokens = 10, .constraint = std::move(constraint)};
    auto request = tally_.Take(generator_, {.prompt = {1, 2}, .options = options});
    return request.ok() ? (*request)->result().text : std::string(request.status().message());
  };
  using Kind = AnswerConstraint::Kind;
  EXPECT_EQ(answer({Kind::kSchema, R"({"type":"object"})"}), "null");
  EXPECT_EQ(answer({Kind::kExtraction, R"({"type":"object"})"}), "null");
  EXPECT_EQ(answer({Kind::kChoices, R"(["good","bad"])"}), "good");
  EXPECT_EQ(answer({Kind::kRegex, "[0-9]+"}), "");
}

TEST_F(PromptTallyTest, ChoicesAreNoLongerThanTheLongest) {
  const GenerationOptions options{
      .max_tokens = 10, .constraint = {AnswerConstraint::Kind::kChoices, R"(["no","maybe"])"}};
  ASSERT_TRUE(tally_.Take(generator_, {.prompt = {1}, .options = options}).ok());
  ASSERT_TRUE(
      tally_.Take(generator_, {.prompt = {2}, .options = options, .wants_first_choices = true})
          .ok());
  const PromptTally::Totals totals = tally_.Count()[0];
  EXPECT_EQ(totals.prompts, 2);
  EXPECT_EQ(totals.answers, 1);
  EXPECT_EQ(totals.most_answer_tokens, 5);  // a token a byte
  EXPECT_EQ(totals.most_chosen_tokens, 5);  // weighed, and said all the same
  EXPECT_EQ(totals.most_tokens_out(), 10);
}

TEST_F(PromptTallyTest, ScoresAndEmbeddingsHaveNoAnswer) {
  ASSERT_TRUE(tally_.Take(generator_, {.prompt = {1, 2}, .score_prompt = true}).ok());
  ASSERT_TRUE(tally_.Take(generator_, {.prompt = {3, 4}, .embed = Pooling::kMean}).ok());
  const PromptTally::Totals totals = tally_.Count()[0];
  EXPECT_EQ(totals.prompts, 2);
  EXPECT_EQ(totals.answers, 0);
  EXPECT_EQ(totals.most_answer_tokens, 0);
}

TEST_F(PromptTallyTest, RefusesWhatTheEngineWould) {
  script_->context_length = 10;
  generator_ = std::make_shared<LocalGenerator>(StartScripted(script_));
  EXPECT_EQ(tally_.Take(generator_, {.prompt = std::vector<int32_t>(10, 1)}).status().code(),
            absl::StatusCode::kOutOfRange);
  EXPECT_TRUE(tally_.empty());
  Take("abcdefgh", 100);
  EXPECT_EQ(tally_.Count()[0].most_answer_tokens, 2);  // the rest of the context
}

TEST_F(PromptTallyTest, ASessionWithATallyAsksNothingOfItsEngine) {
  Session session(generator_, "");
  session.set_tally(&tally_);
  auto request = session.Submit("hello", "be brief", {});
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(Await(*request).tokens_in, 15);
  EXPECT_TRUE(session.Submit({.task = Task::kScore, .prompt = "hello"}).ok());
  EXPECT_TRUE(session.Submit({.task = Task::kEmbed, .prompt = "hello"}).ok());
  EXPECT_EQ(tally_.Count()[0].requests, 3);
  EXPECT_EQ(script_->forwards, 0);
}

}  // namespace
}  // namespace lm
