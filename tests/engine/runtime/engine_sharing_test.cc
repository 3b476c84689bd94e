// The same answers, to the bit, whoever else is in the batch, the cache or the queue; and shared
// prefixes computed once.
#include <gtest/gtest.h>

#include <random>

#include "absl/strings/str_cat.h"
#include "engine/runtime/engine.h"
#include "tests/engine/runtime/scripted_model.h"

namespace lm {
namespace {

constexpr int kRequests = 32;
constexpr int kPrefix = 400;
constexpr int kOwn = 40;

std::vector<int32_t> RandomTokens(std::mt19937& random, int count) {
  std::vector<int32_t> tokens(count);
  for (int32_t& token : tokens) token = static_cast<int32_t>(random() % 256);
  return tokens;
}

// 32 prompts with a common prefix of 400 tokens and 40 of their own that differ from the first.
std::vector<RequestSpec> Burst(int max_tokens = 24) {
  std::mt19937 random(17);
  const std::vector<int32_t> prefix = RandomTokens(random, kPrefix);
  std::vector<RequestSpec> specs;
  for (int i = 0; i < kRequests; ++i) {
    RequestSpec spec{.prompt = prefix, .options = {.max_tokens = max_tokens}, .salt = "s"};
    spec.prompt.push_back(i);
    const std::vector<int32_t> own = RandomTokens(random, kOwn - 1);
    spec.prompt.insert(spec.prompt.end(), own.begin(), own.end());
    if (i % 2 == 1) {
      spec.options.temperature = 0.8;
      spec.options.top_p = 0.9;
      spec.options.repeat_penalty = 1.1;
      spec.options.seed = i;
    }
    specs.push_back(std::move(spec));
  }
  return specs;
}

using Answers = std::vector<std::vector<int32_t>>;

// Submits all while the model holds still, so that they meet in the engine.
Answers RunTogether(Engine& engine, Script& script, const std::vector<RequestSpec>& specs) {
  script.Pause();
  std::vector<std::shared_ptr<Request>> requests;
  for (const RequestSpec& spec : specs) requests.push_back(engine.Submit(spec).value());
  script.Resume();
  Answers answers;
  for (const auto& request : requests) {
    const Generation result = Await(request);
    EXPECT_TRUE(result.status.ok()) << result.status;
    answers.push_back(result.tokens);
  }
  EXPECT_EQ(script.violation(), "");
  return answers;
}

// What each says alone, with nothing shared.
const Answers& Expected() {
  static const Answers* const answers = [] {
    auto* answers = new Answers;
    auto script = std::make_shared<Script>();
    auto engine = StartScripted(script, {.prefix_cache = false});
    for (const RequestSpec& spec : Burst()) {
      answers->push_back(Generate(*engine, spec).tokens);
    }
    return answers;
  }();
  return *answers;
}

void ExpectBlocksAreBack(const Engine& engine) {
  const EngineStats stats = engine.Stats();
  EXPECT_EQ(stats.running, 0);
  EXPECT_EQ(stats.queued, 0);
  EXPECT_EQ(stats.kv_blocks_free + stats.kv_blocks_cached, stats.kv_blocks_total);
}

TEST(EngineSharingTest, TheScriptedModelSaysDifferentThings) {
  const Answers& answers = Expected();
  for (int i = 1; i < kRequests; ++i) EXPECT_NE(answers[i], answers[0]);
  size_t long_ones = 0;
  for (const auto& answer : answers) long_ones += answer.size() > 10;
  EXPECT_GT(long_ones, 20u);
}

TEST(EngineSharingTest, ABurstPrefillsItsCommonPrefixOnce) {
  auto script = std::make_shared<Script>();
  auto engine = StartScripted(script);
  EXPECT_EQ(RunTogether(*engine, *script, Burst()), Expected());
  const EngineStats stats = engine->Stats();
  EXPECT_EQ(stats.tokens_prefilled, kPrefix + kRequests * kOwn);
  EXPECT_EQ(stats.tokens_reused, (kRequests - 1) * kPrefix);
  EXPECT_EQ(script->copies, kRequests - 1);  // the block in which they part
  ExpectBlocksAreBack(*engine);
}

TEST(EngineSharingTest, ABurstThatPartsInItsLastBlockToo) {
  auto script = std::make_shared<Script>();
  auto engine = StartScripted(script);
  auto specs = Burst();
  for (RequestSpec& spec : specs) spec.prompt.resize(kPrefix + 5);
  RunTogether(*engine, *script, specs);
  EXPECT_EQ(engine->Stats().tokens_prefilled, kPrefix + kRequests * 5);
}

TEST(EngineSharingTest, WarmAnswersAreTheSame) {
  auto script = std::make_shared<Script>();
  auto engine = StartScripted(script);
  RunTogether(*engine, *script, Burst());
  const int64_t prefilled = engine->Stats().tokens_prefilled;
  EXPECT_EQ(RunTogether(*engine, *script, Burst()), Expected());
  EXPECT_EQ(engine->Stats().tokens_prefilled, prefilled + kRequests);  // one token each
  const Generation again = Generate(*engine, Burst()[3]);
  EXPECT_EQ(again.tokens, Expected()[3]);
  EXPECT_EQ(again.tokens_cached, kPrefix + kOwn - 1);
}

TEST(EngineSharingTest, AConversationGoesOnWhereItsAnswerEnded) {
  auto script = std::make_shared<Script>();
  auto engine = StartScripted(script);
  RequestSpec spec = Burst()[0];
  const Generation first = Generate(*engine, spec);
  spec.prompt.insert(spec.prompt.end(), first.tokens.begin(), first.tokens.end());
  spec.prompt.push_back('?');
  const Generation next = Generate(*engine, spec);
  // All but the answer's last token, which was never fed to the model, and the new one.
  EXPECT_GE(next.tokens_cached, static_cast<int32_t>(spec.prompt.size()) - 2);
  auto fresh = StartScripted(std::make_shared<Script>());
  EXPECT_EQ(next.tokens, Generate(*fresh, spec).tokens);
}

TEST(EngineSharingTest, SmallStepsChangeNothing) {
  for (int32_t step_tokens : {1, 7, 33, 100}) {
    auto script = std::make_shared<Script>();
    auto engine = StartScripted(script, {.step_tokens = step_tokens});
    EXPECT_EQ(RunTogether(*engine, *script, Burst()), Expected()) << step_tokens;
    EXPECT_LE(script->most_rows, step_tokens);
  }
}

TEST(EngineSharingTest, PreemptionsChangeNothing) {
  for (bool prefix_cache : {true, false}) {
    for (int32_t num_blocks : {15, 17, 24, 40}) {
      auto script = std::make_shared<Script>();
      script->num_blocks = num_blocks;
      auto engine = StartScripted(script, {.step_tokens = 64, .prefix_cache = prefix_cache});
      EXPECT_EQ(RunTogether(*engine, *script, Burst()), Expected()) << num_blocks;
      ExpectBlocksAreBack(*engine);
    }
  }
}

TEST(EngineSharingTest, WindowsAndStatesChangeNothing) {
  const std::vector<std::vector<int64_t>> windows = {{}, {1}, {40}, {100, 33}};
  for (const std::vector<int64_t>& of_classes : windows) {
    for (int32_t num_states : {0, 2, 5, 80}) {
      for (int32_t num_blocks : {20, 60, 300}) {
        for (bool prefix_cache : {true, false}) {
          auto script = std::make_shared<Script>();
          script->windows = of_classes;
          script->num_states = num_states;
          script->num_blocks = num_blocks;
          auto engine = StartScripted(script, {.step_tokens = 64, .prefix_cache = prefix_cache});
          SCOPED_TRACE(absl::StrCat(of_classes.size(), " windows, ", num_states, " states, ",
                                    num_blocks, " blocks, cache ", prefix_cache));
          EXPECT_EQ(RunTogether(*engine, *script, Burst()), Expected());
          EXPECT_EQ(RunTogether(*engine, *script, Burst()), Expected());
          ExpectBlocksAreBack(*engine);
        }
      }
    }
  }
}

TEST(EngineSharingTest, AWindowsMemoryIsThatOfItsWindow) {
  auto script = std::make_shared<Script>();
  script->windows = {64};
  script->context_length = 10000;
  auto engine = StartScripted(script, {.step_tokens = 64, .prefix_cache = false});
  std::mt19937 random(4);
  RequestSpec spec{.prompt = RandomTokens(random, 3000), .options = {.max_tokens = 200}};
  spec.options.logit_bias = {{kImEnd, -1000}};
  script->most_forwards = 48;  // one before its first token
  auto request = engine->Submit(spec).value();
  script->AwaitForward(49);
  const EngineStats stats = engine->Stats();
  const int64_t block = stats.kv_block_bytes / 2;
  const int64_t full = (stats.kv_blocks_total - stats.kv_blocks_free) * block;
  const int64_t windowed = stats.kv_bytes_total - stats.kv_bytes_free - full;
  EXPECT_GE(full / block, 93);
  EXPECT_LE(windowed / block, 5);  // the window's, and a step's
  script->most_forwards = 1 << 20;
  EXPECT_TRUE(Await(request).status.ok());
}

TEST(EngineSharingTest, ABurstInARecurrentModelSharesItsCommonPrefix) {
  for (bool borders : {true, false}) {
    auto script = std::make_shared<Script>();
    script->num_states = 100;
    script->windows = {50};
    auto engine = StartScripted(script);
    std::vector<RequestSpec> specs = Burst();
    for (RequestSpec& spec : specs) {
      if (borders) spec.borders = {kPrefix};
    }
    EXPECT_EQ(RunTogether(*engine, *script, specs), Expected());
    // The first one is under way before the others come: where its template ends it knows, where
    // they part from it it does not.
    const int prefixes = borders ? 1 : 2;
    EXPECT_EQ(engine->Stats().tokens_prefilled, prefixes * kPrefix + kRequests * kOwn);
    EXPECT_EQ(engine->Stats().tokens_reused, (kRequests - prefixes) * kPrefix);
    // Whoever comes later begins there too.
    const Generation later = Generate(*engine, specs[7]);
    EXPECT_EQ(later.tokens, Expected()[7]);
    EXPECT_EQ(later.tokens_cached, kPrefix);
  }
}

// Of few slots one is the prefix's as long as others begin with it.
TEST(EngineSharingTest, RowsThatWaitForAStateDoNotTakeThePrefixs) {
  for (const int num_states : {2, 3, 5}) {
    auto script = std::make_shared<Script>();
    script->num_states = num_states;
    auto engine = StartScripted(script);
    std::vector<RequestSpec> specs = Burst();
    for (RequestSpec& spec : specs) spec.borders = {kPrefix};
    EXPECT_EQ(RunTogether(*engine, *script, specs), Expected());
    EXPECT_EQ(engine->Stats().tokens_prefilled, kPrefix + kRequests * kOwn) << num_states;
    // Nor does where two of them go on together, which is of use to these alone.
    for (int i = 0; i < kRequests; ++i) {
      std::vector<int32_t>& prompt = specs[i].prompt;
      std::fill(prompt.begin() + kPrefix, prompt.end() - 1, i / 2);
      prompt.back() = i;
    }
    RunTogether(*engine, *script, specs);
    EXPECT_LE(engine->Stats().tokens_prefilled, kPrefix + 2 * kRequests * kOwn) << num_states;
  }
}

TEST(EngineSharingTest, ARecurrentModelLearnsWhereItsPromptsPart) {
  auto script = std::make_shared<Script>();
  script->num_states = 20;
  auto engine = StartScripted(script);
  const auto specs = Burst();
  EXPECT_EQ(Generate(*engine, specs[0]).tokens_cached, 0);
  EXPECT_EQ(Generate(*engine, specs[1]).tokens_cached, 0);  // takes a snapshot where it parts
  for (int i = 2; i < 6; ++i) {
    const Generation next = Generate(*engine, specs[i]);
    EXPECT_EQ(next.tokens_cached, kPrefix);
    EXPECT_EQ(next.tokens, Expected()[i]);
  }
  EXPECT_EQ(script->violation(), "");
}

TEST(EngineSharingTest, RowsOfARecurrentModelWaitForAState) {
  auto script = std::make_shared<Script>();
  script->num_states = 3;
  auto engine = StartScripted(script);
  std::vector<RequestSpec> specs = Burst();
  script->Pause();
  std::vector<std::shared_ptr<Request>> requests;
  for (const RequestSpec& spec : specs) requests.push_back(engine->Submit(spec).value());
  script->Resume();
  for (int i = 0; i < kRequests; ++i) {
    EXPECT_LE(engine->Stats().running, 3);
    EXPECT_EQ(Await(requests[i]).tokens, Expected()[i]);
  }
  const EngineStats stats = engine->Stats();
  EXPECT_EQ(stats.kv_bytes_free + stats.kv_bytes_cached, stats.kv_bytes_total);
}

TEST(EngineSharingTest, LongAnswersPreemptEachOtherAndStayTheSame) {
  // Short prompts and long answers: admitted together, too big together.
  std::vector<RequestSpec> specs;
  for (int i = 0; i < 8; ++i) {
    specs.push_back({.prompt = {i, i + 1, i + 2}, .options = {.max_tokens = 150}});
    specs.back().options.logit_bias = {{kImEnd, -1000}};
  }
  auto alone = StartScripted(std::make_shared<Script>());
  Answers expected;
  for (const RequestSpec& spec : specs) expected.push_back(Generate(*alone, spec).tokens);
  auto script = std::make_shared<Script>();
  script->num_blocks = 12;
  auto engine = StartScripted(script);
  EXPECT_EQ(RunTogether(*engine, *script, specs), expected);
  EXPECT_GT(engine->Stats().preemptions, 0);
  ExpectBlocksAreBack(*engine);
}

TEST(EngineSharingTest, CancelledNeighboursChangeNothing) {
  auto script = std::make_shared<Script>();
  script->num_blocks = 60;
  auto engine = StartScripted(script, {.step_tokens = 128});
  std::mt19937 random(3);
  const auto specs = Burst();
  for (int round = 0; round < 10; ++round) {
    std::vector<std::shared_ptr<Request>> requests;
    for (const RequestSpec& spec : specs) requests.push_back(engine->Submit(spec).value());
    std::vector<bool> cancelled(specs.size());
    for (size_t i = 0; i < specs.size(); ++i) {
      cancelled[i] = random() % 2 == 0;
      if (cancelled[i]) requests[i]->Cancel();
      if (random() % 4 == 0) absl::SleepFor(absl::Microseconds(random() % 300));
    }
    for (size_t i = 0; i < specs.size(); ++i) {
      const Generation result = Await(requests[i]);
      if (cancelled[i] && !result.status.ok()) {
        EXPECT_EQ(result.status.code(), absl::StatusCode::kCancelled);
      } else {
        EXPECT_EQ(result.tokens, Expected()[i]);
      }
    }
  }
  EXPECT_EQ(script->violation(), "");
  ExpectBlocksAreBack(*engine);
}

TEST(EngineSharingTest, AnInteractiveRequestOvertakesABatch) {
  auto script = std::make_shared<Script>();
  script->num_blocks = 60;  // of which the 32 rows want more
  auto engine = StartScripted(script, {.step_tokens = 64, .max_sequences = 8});
  script->Pause();
  const std::vector<RequestSpec> specs = Burst();
  std::vector<std::shared_ptr<Request>> batch;
  for (const RequestSpec& spec : specs) batch.push_back(engine->Submit(spec).value());
  RequestSpec urgent = specs[5];
  urgent.options.priority = Priority::kInteractive;
  urgent.salt = "somebody else";
  const auto request = engine->Submit(urgent).value();
  script->Resume();
  EXPECT_EQ(Await(request).tokens, Expected()[5]);
  int finished = 0;
  for (const auto& other : batch) finished += other->WaitFor(absl::ZeroDuration());
  EXPECT_LT(finished, kRequests);
  for (int i = 0; i < kRequests; ++i) EXPECT_EQ(Await(batch[i]).tokens, Expected()[i]);
  EXPECT_EQ(script->violation(), "");
  ExpectBlocksAreBack(*engine);
}

TEST(EngineSharingTest, SaltsShareNothing) {
  auto script = std::make_shared<Script>();
  auto engine = StartScripted(script);
  RequestSpec spec = Burst()[0];
  Generate(*engine, spec);
  spec.salt = "another";
  const Generation other = Generate(*engine, spec);
  EXPECT_EQ(other.tokens, Expected()[0]);
  EXPECT_EQ(other.tokens_cached, 0);
}

TEST(EngineSharingTest, AFloodOfOneSaltLeavesAnothersPrefix) {
  auto script = std::make_shared<Script>();
  script->num_blocks = 100;
  auto engine = StartScripted(script);
  std::mt19937 random(42);
  const RequestSpec mine{
      .prompt = RandomTokens(random, 498), .options = {.max_tokens = 1}, .salt = "A"};
  EXPECT_EQ(Generate(*engine, mine).tokens_cached, 0);
  for (int i = 0; i < 300; ++i) {
    const RequestSpec other{
        .prompt = RandomTokens(random, 200), .options = {.max_tokens = 1}, .salt = "B"};
    ASSERT_TRUE(Generate(*engine, other).status.ok());
  }
  EXPECT_EQ(Generate(*engine, mine).tokens_cached, 497);
  EXPECT_EQ(script->violation(), "");
}

TEST(EngineSharingTest, NoSaltEverSeesAnothersBlocks) {
  auto script = std::make_shared<Script>();
  script->tenants = true;
  script->num_blocks = 20;
  auto engine = StartScripted(script, {.step_tokens = 50});
  std::vector<RequestSpec> specs;
  std::mt19937 random(9);
  for (int i = 0; i < 60; ++i) {
    const int32_t tenant = i % 3;
    RequestSpec spec{.prompt = {tenant}, .options = {.max_tokens = 20}};
    spec.salt = std::string(1, static_cast<char>('a' + tenant));
    for (int32_t token : RandomTokens(random, 1 + random() % 200)) spec.prompt.push_back(token);
    specs.push_back(std::move(spec));
  }
  RunTogether(*engine, *script, specs);
  EXPECT_GT(script->zeroed, 0);
  ExpectBlocksAreBack(*engine);
}

}  // namespace
}  // namespace lm
