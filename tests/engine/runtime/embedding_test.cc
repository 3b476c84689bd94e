// Requests that embed a text: the same vector whatever the batch, the chunks and the cache do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/engine/model/run_model.h"
#include "tests/engine/runtime/scripted_model.h"

namespace lm {
namespace {

using testing::HasSubstr;

std::vector<int32_t> Text(int size, int seed) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < size; ++i) tokens.push_back((i * 7 + seed * 31) % 256);
  return tokens;
}

// Every token's hidden state, from the model itself, one token at a time.
std::vector<std::vector<float>> HiddenStates(const std::vector<int32_t>& tokens) {
  ScriptedModel model(std::make_shared<Script>());
  TestSequence sequence{.tokens = tokens, .blocks = {4, 2, 9, 1, 7, 3}};
  std::vector<std::vector<float>> states;
  for (; sequence.computed < static_cast<int32_t>(tokens.size()); ++sequence.computed) {
    ModelStep step{.hidden_rows = {0}};
    Append(sequence, 1, model, &step);
    states.push_back(RunStep(model, std::move(step)).hidden);
  }
  return states;
}

std::vector<float> Mean(const std::vector<std::vector<float>>& states) {
  std::vector<double> sums(kHiddenSize);
  for (const auto& state : states) {
    for (int i = 0; i < kHiddenSize; ++i) sums[i] += state[i];
  }
  std::vector<float> mean;
  for (double sum : sums)
    mean.push_back(static_cast<float>(sum / static_cast<double>(states.size())));
  return mean;
}

class EmbeddingTest : public testing::Test {
 protected:
  std::vector<float> Embed(const std::vector<int32_t>& text, Pooling pooling) {
    const Generation result = Generate(*engine_, {.prompt = text, .embed = pooling});
    EXPECT_TRUE(result.status.ok()) << result.status;
    EXPECT_EQ(result.tokens_in, static_cast<int32_t>(text.size()));
    EXPECT_EQ(result.tokens_out, 0);
    return result.embedding;
  }

  std::shared_ptr<Script> script_ = std::make_shared<Script>();
  std::shared_ptr<Engine> engine_;
};

TEST_F(EmbeddingTest, PoolsTheHiddenStatesOfAllTokensOrTakesTheLast) {
  engine_ = StartScripted(script_);
  for (int size : {1, 2, 31, 32, 33, 150}) {
    const std::vector<int32_t> text = Text(size, size);
    const auto states = HiddenStates(text);
    EXPECT_EQ(Embed(text, Pooling::kMean), Mean(states)) << size;
    EXPECT_EQ(Embed(text, Pooling::kLast), states.back()) << size;
  }
}

TEST_F(EmbeddingTest, ChunksNeighboursAndCacheChangeNoBit) {
  engine_ = StartScripted(script_, {.step_tokens = 17});
  std::vector<std::shared_ptr<Request>> requests;
  std::vector<std::vector<float>> expected;
  for (int i = 0; i < 12; ++i) {
    const Pooling pooling = i % 2 == 0 ? Pooling::kMean : Pooling::kLast;
    const std::vector<int32_t> text = Text(5 + 11 * i, i % 3);
    const auto states = HiddenStates(text);
    expected.push_back(pooling == Pooling::kMean ? Mean(states) : states.back());
    requests.push_back(engine_->Submit({.prompt = text, .embed = pooling}).value());
    engine_->Submit({.prompt = text, .options = {.max_tokens = 5}}).IgnoreError();
    engine_->Submit({.prompt = text, .score_prompt = true}).IgnoreError();
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(Await(requests[i]).embedding, expected[i]) << i;
  }
  EXPECT_EQ(script_->violation(), "");
}

TEST_F(EmbeddingTest, TheLastTokensStateUsesACachedPrefix) {
  engine_ = StartScripted(script_);
  const std::vector<int32_t> text = Text(100, 1);
  const auto states = HiddenStates(text);
  EXPECT_EQ(Embed(text, Pooling::kLast), states.back());
  const Generation again = Generate(*engine_, {.prompt = text, .embed = Pooling::kLast});
  EXPECT_EQ(again.tokens_cached, 99);
  EXPECT_EQ(again.embedding, states.back());
  const Generation mean = Generate(*engine_, {.prompt = text, .embed = Pooling::kMean});
  EXPECT_EQ(mean.tokens_cached, 0);
  EXPECT_EQ(mean.embedding, Mean(states));
}

TEST_F(EmbeddingTest, TheFirstTokensStateIsComputedWhateverIsCached) {
  engine_ = StartScripted(script_, {.step_tokens = 17});
  const std::vector<int32_t> text = Text(100, 1);
  EXPECT_EQ(Embed(text, Pooling::kLast), HiddenStates(text).back());
  const Generation first = Generate(*engine_, {.prompt = text, .embed = Pooling::kFirst});
  EXPECT_EQ(first.tokens_cached, 0);
  EXPECT_EQ(first.embedding, HiddenStates(text).front());
}

// What an encoder gives for a text: computed at once, beside which others whatever.
std::vector<float> WholeText(const std::vector<int32_t>& tokens, Pooling pooling) {
  auto script = std::make_shared<Script>();
  script->whole_sequences = true;
  ScriptedModel model(script);
  TestSequence sequence{.tokens = tokens, .blocks = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}};
  ModelStep step;
  const int32_t size = static_cast<int32_t>(tokens.size());
  for (int32_t i = 0; i < size; ++i) step.hidden_rows.push_back(i);
  Append(sequence, size, model, &step);
  const std::vector<float> hidden = RunStep(model, std::move(step)).hidden;
  std::vector<std::vector<float>> states;
  for (int32_t i = 0; i < size; ++i) {
    states.emplace_back(hidden.begin() + i * kHiddenSize, hidden.begin() + (i + 1) * kHiddenSize);
  }
  if (pooling == Pooling::kMean) return Mean(states);
  return pooling == Pooling::kFirst ? states.front() : states.back();
}

TEST_F(EmbeddingTest, AnEncodersTextIsComputedInOneStepAndNothingIsKept) {
  script_->whole_sequences = true;
  engine_ = StartScripted(script_, {.step_tokens = 64});
  script_->Pause();
  std::vector<std::shared_ptr<Request>> requests;
  std::vector<std::vector<float>> expected;
  int tokens = 0;
  for (int i = 0; i < 24; ++i) {
    const Pooling pooling = i % 3 == 0   ? Pooling::kMean
                            : i % 3 == 1 ? Pooling::kFirst
                                         : Pooling::kLast;
    // Longer than a step's tokens, some of them, and all of them begin alike.
    const std::vector<int32_t> text = Text(1 + i * 13, 0);
    tokens += 1 + i * 13;
    expected.push_back(WholeText(text, pooling));
    requests.push_back(engine_->Submit({.prompt = text, .embed = pooling}).value());
  }
  script_->Resume();
  for (size_t i = 0; i < requests.size(); ++i) {
    const Generation result = Await(requests[i]);
    EXPECT_TRUE(result.status.ok()) << result.status;
    EXPECT_EQ(result.embedding, expected[i]) << i;
    EXPECT_EQ(result.tokens_cached, 0);
  }
  EXPECT_EQ(script_->violation(), "");
  EXPECT_LT(script_->forwards, 24);                 // the short ones shared steps
  EXPECT_LT(script_->most_rows, 64 + 1 + 23 * 13);  // the longest came behind less than a step
  EXPECT_EQ(engine_->Stats().tokens_prefilled, tokens);
  EXPECT_EQ(engine_->Stats().kv_blocks_cached, 0);
  EXPECT_EQ(engine_->Stats().kv_blocks_free, engine_->Stats().kv_blocks_total);
}

TEST_F(EmbeddingTest, AnEncodersTextGoesBackAndIsComputedAgainWhereMemoryIsShort) {
  script_->whole_sequences = true;
  script_->num_blocks = 8;  // 256 tokens
  engine_ = StartScripted(script_, {.step_tokens = 512});
  std::vector<std::shared_ptr<Request>> requests;
  for (int i = 0; i < 12; ++i) {
    requests.push_back(
        engine_->Submit({.prompt = Text(20 + 17 * i, i), .embed = Pooling::kMean}).value());
  }
  for (int i = 0; i < 12; ++i) {
    EXPECT_EQ(Await(requests[i]).embedding, WholeText(Text(20 + 17 * i, i), Pooling::kMean)) << i;
  }
  EXPECT_EQ(script_->violation(), "");
}

TEST_F(EmbeddingTest, PreemptionCountsNoTokenTwice) {
  script_->num_blocks = 8;
  engine_ = StartScripted(script_, {.step_tokens = 24});
  std::vector<std::shared_ptr<Request>> requests;
  // Answers that grow take blocks away from whoever came last.
  for (int i = 0; i < 2; ++i) {
    engine_->Submit({.prompt = Text(3, i), .options = {.max_tokens = 90}}).IgnoreError();
  }
  for (int i = 0; i < 6; ++i) {
    requests.push_back(engine_->Submit({.prompt = Text(100, i), .embed = Pooling::kMean}).value());
  }
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(Await(requests[i]).embedding, Mean(HiddenStates(Text(100, i)))) << i;
  }
}

TEST_F(EmbeddingTest, FillsTheContextAndNoMore) {
  script_->context_length = 64;
  engine_ = StartScripted(script_);
  EXPECT_EQ(Embed(Text(64, 1), Pooling::kLast).size(), size_t{kHiddenSize});
  const absl::Status over =
      engine_->Submit({.prompt = Text(65, 1), .embed = Pooling::kMean}).status();
  EXPECT_EQ(over.message(), "the prompt has 65 tokens, the context holds 64");
}

TEST_F(EmbeddingTest, AStateThatIsNoNumberIsAnError) {
  script_->nan_token = 77;
  engine_ = StartScripted(script_);
  const Generation result = Generate(*engine_, {.prompt = {1, 77, 2}, .embed = Pooling::kMean});
  EXPECT_EQ(result.status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(result.status.message()), HasSubstr("token 1 is not finite"));
  EXPECT_TRUE(result.embedding.empty());
  EXPECT_EQ(Embed({1, 2}, Pooling::kMean).size(), size_t{kHiddenSize});
}

}  // namespace
}  // namespace lm
