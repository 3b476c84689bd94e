#include "engine/runtime/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <thread>

#include "engine/base/utf8.h"
#include "tests/engine/model/run_model.h"
#include "tests/engine/runtime/scripted_model.h"

namespace lm {
namespace {

using testing::HasSubstr;

class EngineTest : public testing::Test {
 protected:
  void Start(const EngineOptions& options = {}) { engine_ = StartScripted(script_, options); }
  // The answer to a prompt for which the script says `answer`.
  Generation Say(const std::string& answer, GenerationOptions options = {}) {
    script_->says = {{Bytes("say:"), Bytes(answer)}};
    Start();
    return Generate(*engine_, {.prompt = Bytes("say:"), .options = std::move(options)});
  }
  absl::Status Refusal(RequestSpec spec) { return engine_->Submit(std::move(spec)).status(); }

  std::shared_ptr<Script> script_ = std::make_shared<Script>();
  std::shared_ptr<Engine> engine_;
};

TEST_F(EngineTest, AnswersUntilTheModelEnds) {
  const Generation result = Say("Hello, Wörld!");
  EXPECT_TRUE(result.status.ok());
  EXPECT_EQ(result.text, "Hello, Wörld!");
  EXPECT_EQ(result.finish, FinishReason::kStop);
  EXPECT_EQ(result.tokens, Bytes("Hello, Wörld!"));
  EXPECT_EQ(result.tokens_in, 4);
  EXPECT_EQ(result.tokens_out, 14);
  EXPECT_EQ(result.tokens_cached, 0);
  EXPECT_GT(result.time_to_first_token, absl::ZeroDuration());
  EXPECT_GE(result.total, result.time_to_first_token);
  EXPECT_GE(result.time_to_first_token, result.queued);
}

TEST_F(EngineTest, MaxTokensEndsAnAnswer) {
  const Generation result = Say("abcdef", {.max_tokens = 3});
  EXPECT_EQ(result.text, "abc");
  EXPECT_EQ(result.finish, FinishReason::kLength);
  const Generation none = Generate(*engine_, {.prompt = {1}, .options = {.max_tokens = 0}});
  EXPECT_TRUE(none.status.ok());
  EXPECT_EQ(none.text, "");
  EXPECT_EQ(none.finish, FinishReason::kLength);
  EXPECT_EQ(none.tokens_in, 1);
}

TEST_F(EngineTest, TheContextEndsAnAnswer) {
  script_->context_length = 50;
  script_->says = {{Bytes("a"), Bytes(std::string(100, 'b'))}};
  Start();
  const Generation result = Generate(*engine_, {.prompt = Bytes("a")});
  EXPECT_EQ(result.finish, FinishReason::kContext);
  EXPECT_EQ(result.text, std::string(49, 'b'));
}

TEST_F(EngineTest, ThePoolEndsALoneAnswer) {
  script_->num_blocks = 2;
  script_->says = {{Bytes("a"), Bytes(std::string(100, 'b'))}};
  Start();
  EXPECT_EQ(engine_->max_sequence_tokens(), 64);
  const Generation result = Generate(*engine_, {.prompt = Bytes("a")});
  EXPECT_EQ(result.finish, FinishReason::kContext);
  EXPECT_EQ(result.text, std::string(63, 'b'));
}

TEST_F(EngineTest, StopStringsAcrossTokens) {
  EXPECT_EQ(Say("one\n\ntwo", {.stop = {"\n\n"}}).text, "one");
  const Generation held = Say("one\n", {.stop = {"\n\n"}});
  EXPECT_EQ(held.text, "one\n");  // held back, then released
  EXPECT_EQ(Say("aé€b", {.stop = {"x", "é€"}}).text, "a");
  const Generation stopped = Say("abcd", {.stop = {"bc"}});
  EXPECT_EQ(stopped.finish, FinishReason::kStop);
  EXPECT_EQ(stopped.tokens, Bytes("abc"));
  EXPECT_EQ(Say("ab", {.max_tokens = 1, .stop = {"abc"}}).text, "a");
}

TEST_F(EngineTest, TextIsAlwaysUtf8) {
  EXPECT_EQ(Say("caf\xc3").text, "caf\xef\xbf\xbd");
  EXPECT_EQ(Say("€uro", {.max_tokens = 2}).text, "\xef\xbf\xbd");
  EXPECT_EQ(Say("€uro", {.max_tokens = 3}).text, "€");
  Start();
  for (int seed = 0; seed < 50; ++seed) {
    GenerationOptions options{.temperature = 2, .seed = static_cast<uint64_t>(seed)};
    const Generation result = Generate(*engine_, {.prompt = {1, 2, 3}, .options = options});
    EXPECT_EQ(ValidUtf8Prefix(result.text), result.text.size());
  }
}

TEST_F(EngineTest, PromptsUnderOneSeedAreDrawnIndependently) {
  Start();
  // So hot that whatever the logits, a number leads to the same token.
  const GenerationOptions options{.max_tokens = 1, .temperature = 1e9, .seed = 3};
  std::set<int32_t> drawn;
  for (int32_t i = 0; i < 60; ++i) {
    const RequestSpec spec{.prompt = {1, i, 2}, .options = options};
    const std::vector<int32_t> tokens = Generate(*engine_, spec).tokens;
    EXPECT_EQ(Generate(*engine_, spec).tokens, tokens);
    drawn.insert(tokens.empty() ? kImEnd : tokens[0]);
  }
  EXPECT_GT(drawn.size(), 30u);
}

TEST_F(EngineTest, ScoresAPrompt) {
  Start({.step_tokens = 20});
  std::vector<int32_t> prompt;
  for (int i = 0; i < 75; ++i) prompt.push_back(i * 7 % 256);
  const Generation result = Generate(*engine_, {.prompt = prompt, .score_prompt = true});
  ASSERT_TRUE(result.status.ok()) << result.status;
  ASSERT_EQ(result.prompt_logprobs.size(), prompt.size() - 1);
  EXPECT_EQ(result.tokens_cached, 0);
  EXPECT_EQ(result.tokens_out, 0);
  EXPECT_EQ(engine_->Stats().kv_blocks_free, script_->num_blocks);

  // The same through the model itself, one token at a time.
  ScriptedModel model(std::make_shared<Script>());
  TestSequence sequence{.tokens = prompt, .blocks = {3, 1, 2}};
  for (size_t p = 0; p + 1 < prompt.size(); ++p) {
    const std::vector<float> logits = Feed(model, {&sequence}, {1});
    double sum = 0;
    for (float l : logits) sum += std::exp(double{l});
    EXPECT_FLOAT_EQ(result.prompt_logprobs[p],
                    static_cast<float>(logits[prompt[p + 1]] - std::log(sum)));
  }

  // Warm caches and neighbours change nothing, and one token has nothing to score.
  Generate(*engine_, {.prompt = prompt});
  EXPECT_EQ(Generate(*engine_, {.prompt = prompt, .score_prompt = true}).prompt_logprobs,
            result.prompt_logprobs);
  const Generation one = Generate(*engine_, {.prompt = {5}, .score_prompt = true});
  EXPECT_TRUE(one.status.ok());
  EXPECT_TRUE(one.prompt_logprobs.empty());
}

TEST_F(EngineTest, NeverSaysASuppressedToken) {
  script_->says = {{Bytes("say:"), Bytes("abc")}};
  Start();
  const GenerationOptions few = {.max_tokens = 3};
  GenerationOptions without = few;
  without.logit_bias = {{'b', -1e6}};
  const Generation biased = Generate(*engine_, {.prompt = Bytes("say:"), .options = without});
  const Generation score = Generate(*engine_, {.prompt = Bytes("say:ba"), .score_prompt = true});
  const double of_b = std::exp(double{score.prompt_logprobs[3]});
  ASSERT_NE(biased.text, "abc");

  script_->suppressed = {'b', -1, 1 << 30};
  Start();
  Generation said = Generate(
      *engine_, {.prompt = Bytes("say:"), .options = few, .stream = true, .wants_logprob = true});
  EXPECT_EQ(said.tokens, biased.tokens);
  GenerationOptions adjusted = few;
  adjusted.logit_bias = {{'b', 1e6}};
  said = Generate(
      *engine_,
      {.prompt = Bytes("say:"), .options = adjusted, .stream = true, .wants_logprob = true});
  EXPECT_EQ(said.tokens, biased.tokens);
  for (int seed = 0; seed < 200; ++seed) {
    said = Generate(
        *engine_,
        {.prompt = {1, 2, 3},
         .options = {.max_tokens = 20, .temperature = 5, .seed = static_cast<uint64_t>(seed)}});
    EXPECT_THAT(said.tokens, testing::Not(testing::Contains('b')));
  }
  // Probabilities are those of the others.
  const Generation scored = Generate(*engine_, {.prompt = Bytes("say:ba"), .score_prompt = true});
  EXPECT_EQ(scored.prompt_logprobs[3], -std::numeric_limits<float>::infinity());
  const Generation other = Generate(*engine_, {.prompt = Bytes("say:a"), .score_prompt = true});
  script_->suppressed.clear();
  Start();
  const Generation before = Generate(*engine_, {.prompt = Bytes("say:a"), .score_prompt = true});
  EXPECT_NEAR(other.prompt_logprobs[3], before.prompt_logprobs[3] - std::log1p(-of_b), 1e-5);
}

TEST_F(EngineTest, RefusesWhatCannotBe) {
  script_->context_length = 100;
  Start();
  EXPECT_EQ(Refusal({}).message(), "the prompt has no tokens");
  EXPECT_EQ(Refusal({.prompt = {1, kVocabSize}}).message(),
            "token 300 of the prompt is not in the vocabulary of 300");
  EXPECT_EQ(Refusal({.prompt = {-1}}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Refusal({.prompt = {1}, .options = {.temperature = -1}}).message(),
            "temperature must be >= 0, got -1");
  EXPECT_EQ(Refusal({.prompt = {1}, .options = {.logit_bias = {{300, 1.0}}}}).message(),
            "token 300 of logit_bias is not in the vocabulary of 300");
  const absl::Status over = Refusal({.prompt = std::vector<int32_t>(100, 1)});
  EXPECT_EQ(over.code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(over.message(),
            "the prompt has 100 tokens, the context holds 100, and at least one is for the answer");
  EXPECT_TRUE(Refusal({.prompt = std::vector<int32_t>(99, 1)}).ok());
  EXPECT_TRUE(Refusal({.prompt = std::vector<int32_t>(100, 1), .score_prompt = true}).ok());
  EXPECT_EQ(Refusal({.prompt = std::vector<int32_t>(101, 1), .score_prompt = true}).message(),
            "the prompt has 101 tokens, the context holds 100");
}

TEST_F(EngineTest, APromptLargerThanThePoolIsRefused) {
  script_->num_blocks = 2;
  Start();
  EXPECT_THAT(std::string(Refusal({.prompt = std::vector<int32_t>(64, 1)}).message()),
              HasSubstr("64 tokens, the KV cache (kv_bytes) holds 64"));
  EXPECT_TRUE(Refusal({.prompt = std::vector<int32_t>(63, 1)}).ok());
}

TEST_F(EngineTest, TheQueueIsBounded) {
  script_->Pause();
  Start({.max_sequences = 1, .max_queued = 3});
  std::vector<std::shared_ptr<Request>> requests;
  requests.push_back(engine_->Submit({.prompt = {1}}).value());
  script_->AwaitForward(1);
  for (int i = 0; i < 3; ++i) requests.push_back(engine_->Submit({.prompt = {1}}).value());
  EXPECT_EQ(engine_->Stats().queued, 3);
  EXPECT_EQ(engine_->Stats().running, 1);
  const absl::Status full = Refusal({.prompt = {1}});
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(full.message(), "the engine's queue is full: 3 requests wait, at most 3 may");
  script_->Resume();
  for (const auto& request : requests) EXPECT_TRUE(Await(request).status.ok());
  EXPECT_TRUE(Refusal({.prompt = {1}}).ok());
}

TEST_F(EngineTest, AFloodOfOneSaltDoesNotStarveAnother) {
  Start({.max_sequences = 4});
  script_->Pause();
  std::vector<std::shared_ptr<Request>> hog;
  for (int i = 0; i < 400; ++i) {
    hog.push_back(
        engine_->Submit({.prompt = {i % 256}, .options = {.max_tokens = 10}, .salt = "hog"})
            .value());
  }
  auto small =
      engine_->Submit({.prompt = {7}, .options = {.max_tokens = 10}, .salt = "small"}).value();
  script_->Resume();
  EXPECT_TRUE(Await(small).status.ok());
  // It was the 401st to come, and is one of the first to go.
  auto end = [](const Request& request) { return request.submitted() + request.result().total; };
  int before = 0;
  for (const auto& request : hog) {
    EXPECT_TRUE(Await(request).status.ok());
    before += end(*request) < end(*small);
  }
  EXPECT_LT(before, 20);
}

TEST_F(EngineTest, CountsWhatItDoes) {
  script_->says = {{Bytes("say:"), Bytes("abcde")}};
  script_->step_time = absl::Milliseconds(1);
  Start();
  const GenerationOptions options = {.speculate = Speculate::kOff};
  Generate(*engine_, {.prompt = Bytes("say:"), .options = options});
  Generate(*engine_, {.prompt = Bytes("say:"), .options = options});
  const EngineStats stats = engine_->Stats();
  EXPECT_EQ(stats.requests, 2);
  EXPECT_EQ(stats.failed, 0);
  EXPECT_EQ(stats.tokens_prefilled, 4 + 1);
  EXPECT_EQ(stats.tokens_reused, 3);
  EXPECT_EQ(stats.tokens_decoded, 12);  // the ends of the answers too
  EXPECT_EQ(stats.steps, 12);
  EXPECT_EQ(stats.decode_steps, 10);
  EXPECT_GE(stats.prefill_time, absl::Milliseconds(2));
  EXPECT_GE(stats.decode_time, absl::Milliseconds(10));
  EXPECT_EQ(stats.time_to_first_token.count, 2);
  EXPECT_EQ(stats.inter_token_latency.count, 10);
  EXPECT_GE(stats.inter_token_latency.p50, absl::Milliseconds(1));
  EXPECT_EQ(stats.kv_blocks_total, 512);
  EXPECT_EQ(stats.kv_blocks_cached, 1);
  EXPECT_EQ(stats.kv_blocks_free, 511);
}

TEST_F(EngineTest, ManyClientsAtOnce) {
  script_->num_blocks = 64;
  Start({.step_tokens = 64});
  std::vector<std::thread> clients;
  std::atomic<int> answers{0};
  for (int c = 0; c < 8; ++c) {
    clients.emplace_back([&, c] {
      for (int i = 0; i < 20; ++i) {
        const Generation result = Generate(*engine_, {.prompt = {c, i, 3},
                                                      .options = {.max_tokens = 8},
                                                      .salt = std::string(1, 'a' + c % 3)});
        answers += result.status.ok();
        engine_->Stats();
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(answers, 160);
}

TEST_F(EngineTest, TellsASaltWhatItHasInTheCacheAndWhatItAsked) {
  script_->says = {{Bytes("mine"), Bytes("abc")}};
  Start();
  Generate(*engine_, {.prompt = Bytes("mine"), .salt = "me"});
  Generate(*engine_,
           {.prompt = Bytes("secret of another"), .options = {.max_tokens = 1}, .salt = "you"});
  auto inspect = [this](const std::string& salt) {
    auto inspection = engine_->InspectCache(salt);
    EXPECT_TRUE(inspection->WaitFor(absl::Seconds(30)));
    return inspection->runs();
  };
  ASSERT_EQ(inspect("me").size(), 1u);
  EXPECT_EQ(inspect("me")[0].beginning, Bytes("mineabc"));
  EXPECT_TRUE(inspect("").empty());
  ASSERT_EQ(engine_->RecentRequests("me").size(), 1u);
  EXPECT_EQ(engine_->RecentRequests("me")[0].tokens_out, 3);
  EXPECT_TRUE(engine_->RecentRequests("").empty());

  engine_->Stop();
  EXPECT_TRUE(inspect("me").empty());
}

TEST_F(EngineTest, AnInspectionWaitsForTheStepAndNoLonger) {
  script_->Pause();
  Start();
  auto request = engine_->Submit({.prompt = {1}}).value();
  script_->AwaitForward(1);
  auto inspection = engine_->InspectCache("");
  EXPECT_FALSE(inspection->WaitFor(absl::Milliseconds(20)));
  std::thread stopper([this] { engine_->Stop(); });
  EXPECT_TRUE(inspection->WaitFor(absl::Seconds(30)));
  stopper.join();
}

}  // namespace
}  // namespace lm
