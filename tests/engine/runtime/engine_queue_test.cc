// Steps that begin before the one before has been read (engine/runtime/engine_queue.cc), on a
// scripted model that takes another token for each one that comes late.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/runtime/engine.h"
#include "tests/engine/runtime/scripted_model.h"

namespace lm {
namespace {

using Kind = AnswerConstraint::Kind;

GenerationOptions Free(int32_t tokens) {
  return {.max_tokens = tokens, .speculate = Speculate::kOff};
}

class EngineQueueTest : public testing::Test {
 protected:
  void SetUp() override { script_->queues_steps = true; }

  Generation Ask(const std::string& prompt, GenerationOptions options) {
    if (engine_ == nullptr) engine_ = StartScripted(script_);
    Generation result =
        Generate(*engine_, {.prompt = Bytes(prompt), .options = std::move(options)});
    EXPECT_EQ(script_->violation(), "");
    return result;
  }

  // Of so many rows, "row 0:" and so on, which come all before the first step is over.
  std::vector<Generation> AskRows(int count, const GenerationOptions& options) {
    script_->Pause();
    std::vector<std::shared_ptr<Request>> requests;
    for (int i = 0; i < count; ++i) {
      requests.push_back(engine_->Submit({.prompt = Row(i), .options = options}).value());
    }
    script_->Resume();
    std::vector<Generation> results;
    for (const auto& request : requests) results.push_back(Await(request));
    EXPECT_EQ(script_->violation(), "");
    return results;
  }
  static std::vector<int32_t> Row(int i) { return Bytes("row " + std::to_string(i) + ":"); }

  std::shared_ptr<Script> script_ = std::make_shared<Script>();
  std::shared_ptr<Engine> engine_;
};

TEST_F(EngineQueueTest, OfALongAnswerStepsBeginBehindAnother) {
  // All but those of the first nine tokens, after eight of which it is a long one.
  const Generation result = Ask("tell ", Free(30));
  EXPECT_EQ(result.tokens.size(), 30u);
  EXPECT_EQ(script_->begun_behind, 21);
  EXPECT_EQ(engine_->Stats().early_steps, 21);
  EXPECT_EQ(engine_->Stats().steps, 30);
}

TEST_F(EngineQueueTest, OfManyAnswersStepsBeginBehindAnotherAtOnce) {
  for (int i = 0; i < 4; ++i) script_->says.push_back({Row(i), Bytes("a long answer")});
  engine_ = StartScripted(script_);
  for (const Generation& result : AskRows(4, Free(6))) EXPECT_EQ(result.tokens.size(), 6u);
  EXPECT_EQ(script_->begun_behind, 4);  // all but the prompts' and the one behind those
}

TEST_F(EngineQueueTest, WhatBeginsBehindTheEndIsForgotten) {
  const std::string text = "it ends, but not before this.";
  script_->says = {{Bytes("tell "), Bytes(text)}};
  EXPECT_EQ(Ask("tell ", Free(100)).text, text);
  EXPECT_EQ(engine_->Stats().steps, 30);
  EXPECT_EQ(engine_->Stats().tokens_decoded, 30);
  EXPECT_EQ(script_->begun_behind, 22);  // the last one in vain
  EXPECT_EQ(engine_->Stats().early_steps, 21);
  // What that has left in the cache does no harm.
  EXPECT_EQ(Ask("tell ", Free(100)).text, text);
  EXPECT_EQ(script_->begun_behind, 44);
}

TEST_F(EngineQueueTest, TheAnswersAreThoseOfStepsOneByOne) {
  const std::string schema = R"({"type":"object","required":["n","s"],"properties":
      {"n":{"type":"integer","maximum":99999},"s":{"type":"string","maxLength":12}}})";
  std::vector<GenerationOptions> all = {Free(70), Free(33), Free(2)};
  all.push_back({.max_tokens = 50, .temperature = 0.8, .seed = 7});
  all.push_back({.max_tokens = 50, .temperature = 1.5, .top_k = 5, .seed = 8});
  all.push_back({.max_tokens = 60, .repeat_penalty = 1.4});
  all.push_back({.max_tokens = 60, .stop = {"a", "7"}});
  all.push_back({.max_tokens = 60, .logit_bias = {{65, 3.5}}});
  all.push_back({.max_tokens = 60, .constraint = {Kind::kRegex, "[a-f]{8,50}"}});
  all.push_back({.max_tokens = 60, .constraint = {Kind::kSchema, schema}});
  auto answers = [&](const std::shared_ptr<Script>& script, int32_t sequences) {
    auto engine = StartScripted(script, {.max_sequences = sequences});
    std::vector<std::shared_ptr<Request>> requests;
    for (int i = 0; i < 40; ++i) {
      requests.push_back(engine
                             ->Submit({.prompt = Bytes("row " + std::to_string(i * i) + ": "),
                                       .options = all[i % all.size()]})
                             .value());
    }
    std::string shown;
    for (const auto& request : requests) {
      const Generation result = Await(request);
      EXPECT_TRUE(result.status.ok()) << result.status;
      shown += result.text + std::string(FinishReasonName(result.finish)) + "\n";
    }
    EXPECT_EQ(script->violation(), "");
    return shown;
  };
  const std::string wanted = answers(std::make_shared<Script>(), 64);
  for (const int32_t late : {0, 5}) {
    for (const int32_t sequences : {64, 6}) {
      auto script = std::make_shared<Script>();
      script->queues_steps = true;
      script->late_each = late;
      if (late > 0) script->windows = {24};
      EXPECT_EQ(answers(script, sequences), wanted) << late << " " << sequences;
      EXPECT_GT(script->begun_behind, 10) << late << " " << sequences;
    }
  }
}

TEST_F(EngineQueueTest, AnotherRequestDoesNotWaitForTheEnd) {
  script_->step_time = absl::Milliseconds(1);
  engine_ = StartScripted(script_);
  auto first = engine_->Submit({.prompt = Bytes("long "), .options = Free(1500)}).value();
  script_->AwaitForward(20);
  EXPECT_EQ(Ask("short ", Free(4)).tokens.size(), 4u);
  EXPECT_FALSE(first->WaitFor(absl::ZeroDuration()));
  first->Cancel();
  EXPECT_EQ(Await(first).status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(Ask("short ", Free(4)).tokens.size(), 4u);
}

TEST_F(EngineQueueTest, ShortAnswersGetTheirPlacesFirst) {
  engine_ = StartScripted(script_, {.max_sequences = 4});
  for (const Generation& result : AskRows(40, Free(4))) EXPECT_TRUE(result.status.ok());
  EXPECT_LE(script_->begun_behind, 4);  // when nobody waits any more
}

TEST_F(EngineQueueTest, WhoWaitsGetsThePlaceOfALongAnswerToo) {
  auto steps = [&](bool queues) {
    script_ = std::make_shared<Script>();
    script_->queues_steps = queues;
    for (int i = 0; i < 40; ++i) {
      script_->says.push_back(
          {Row(i), Bytes(std::string(static_cast<size_t>(30 + 7 * (i % 5)), 'a'))});
    }
    engine_ = StartScripted(script_, {.max_sequences = 4});
    for (const Generation& result : AskRows(40, Free(100))) EXPECT_GE(result.tokens.size(), 30u);
    return engine_->Stats().steps;
  };
  const int64_t one_by_one = steps(false), queued = steps(true);
  EXPECT_GT(script_->begun_behind, one_by_one / 2);
  EXPECT_LE(queued, one_by_one * 1.05);
}

TEST_F(EngineQueueTest, WhereTokensComeLateStepsDoNotBecomeMore) {
  script_->late_each = 1;
  Ask("tell ", Free(40));
  const int64_t before = engine_->Stats().steps, begun = script_->begun_behind;
  Ask("more ", Free(40));
  EXPECT_LE(engine_->Stats().steps - before, 40);
  EXPECT_LE(script_->begun_behind - begun, 2);
}

TEST_F(EngineQueueTest, AFailureToBeginIsThatOfThoseWhoWouldGoOn) {
  const std::vector<int32_t> tokens = Ask("tell ", Free(40)).tokens;
  ASSERT_EQ(std::count(tokens.begin(), tokens.begin() + 19, tokens[19]), 0);
  engine_ = StartScripted(script_);
  script_->Pause();
  auto short_one = engine_->Submit({.prompt = Bytes("tell "), .options = Free(20)}).value();
  auto long_one = engine_->Submit({.prompt = Bytes("tell "), .options = Free(40)}).value();
  script_->error_token = tokens[19];  // sampled in the short one's last step, computed behind it
  script_->Resume();
  EXPECT_EQ(Await(short_one).tokens, std::vector(tokens.begin(), tokens.begin() + 20));
  EXPECT_EQ(Await(long_one).status.code(), absl::StatusCode::kInternal);
}

TEST_F(EngineQueueTest, WhereGrammarsForceMuchStepsDoNotBecomeMore) {
  const std::string schema =
      R"({"type":"array","minItems":3,"maxItems":3,"items":{"type":"object","required":["color"],
          "properties":{"color":{"enum":["red","rose","blue"]}},"additionalProperties":false}})";
  const GenerationOptions options = {.constraint = {Kind::kSchema, schema},
                                     .speculate = Speculate::kOff};
  script_->says = {
      {Bytes("colors: "), Bytes(R"([{"color":"rose"},{"color":"blue"},{"color":"rose"}])")}};
  Ask("colors: ", options);
  const int64_t before = engine_->Stats().steps;
  for (int i = 0; i < 20; ++i) Ask("colors: ", options);
  EXPECT_EQ(engine_->Stats().steps - before, 20 * 5);  // r, o, b, r, o: all else is forced
}

TEST_F(EngineQueueTest, WhatCanBeGuessedIsGuessed) {
  // What comes first nobody can guess, what follows that is in the prompt.
  const std::string text = "The quick brown fox jumps over the lazy dog. ";
  const std::string prompt = text + text + "Again: ", fresh = "0123456789=+*~@#%&^";
  script_->says = {{Bytes(prompt), Bytes(fresh + text + text)}};
  for (int i = 0; i < 3; ++i) Ask(prompt, {.max_tokens = 120});
  EXPECT_GT(engine_->Stats().tokens_accepted, 60);
  EXPECT_GT(script_->begun_behind, 8);
}

TEST_F(EngineQueueTest, WithoutMemoryForAStepThoseUnderWayFailAndOthersDoNot) {
  const std::vector<int32_t> tokens = Ask("tell ", Free(24)).tokens;
  for (int when = 1; when < 24; ++when) {
    script_->throw_in = when;
    EXPECT_EQ(Ask("tell ", Free(24)).status.code(), absl::StatusCode::kResourceExhausted);
    script_->throw_in = 0;
    EXPECT_EQ(Ask("tell ", Free(24)).tokens, tokens);
  }
}

}  // namespace
}  // namespace lm
