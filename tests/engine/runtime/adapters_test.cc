// Adapters (LoRA) of requests: which are meant, and that rows with different ones share batches but
// neither prefixes nor answers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "engine/runtime/local_generator.h"
#include "engine/runtime/memo_key.h"
#include "engine/runtime/prompt_tally.h"
#include "tests/engine/runtime/scripted_model.h"

namespace lm {
namespace {

using testing::HasSubstr;

std::vector<AdapterInfo> TwoAdapters() {
  return {{.name = "terse", .digest = "digest of terse", .scale = 0},
          {.name = "rude", .digest = "digest of rude", .scale = 0}};
}

RequestSpec Spec(const std::string& prompt, AdapterSet adapters) {
  return {.prompt = Bytes(prompt),
          .text = prompt,
          .options = {.max_tokens = 12},
          .adapters = std::move(adapters)};
}

class AdaptersTest : public testing::Test {
 protected:
  AdaptersTest() { script_->adapters = TwoAdapters(); }
  void Start(const EngineOptions& options = {}) { engine_ = StartScripted(script_, options); }

  const std::vector<AdapterSet> sets_ = {{},          {{0, 1}},         {{1, 1}},
                                         {{0, 0.5f}}, {{0, 1}, {1, 1}}, {{0, 1}, {1, -1}}};
  const std::string prefix_ = std::string(70, 'p') + std::string(30, 'q');
  std::shared_ptr<Script> script_ = std::make_shared<Script>();
  std::shared_ptr<Engine> engine_;
};

TEST_F(AdaptersTest, APrefixIsFoundByThoseOfItsAdaptersAlone) {
  Start();
  for (const AdapterSet& set : sets_) {
    EXPECT_EQ(Generate(*engine_, Spec(prefix_ + "a", set)).tokens_cached, 0);
  }
  for (const AdapterSet& set : sets_) {
    EXPECT_EQ(Generate(*engine_, Spec(prefix_ + "b", set)).tokens_cached, 100);
  }
  EXPECT_EQ(script_->violation(), "");

  std::set<std::string> shown;
  const std::shared_ptr<CacheInspection> cached = engine_->InspectCache("");
  ASSERT_TRUE(cached->WaitFor(absl::Seconds(20)));
  for (const PrefixTree::Run& run : cached->runs()) shown.insert(run.adapters);
  EXPECT_EQ(shown.size(), sets_.size());
  EXPECT_TRUE(shown.contains(""));
  EXPECT_TRUE(shown.contains(R"([{"name":"terse","scale":1.0},{"name":"rude","scale":-1.0}])"));
}

// Prompts that begin alike, in one batch: one computes the prefix of its adapters, and the others
// of the same wait for that.
TEST_F(AdaptersTest, RowsOfAllAdaptersShareBatchesAndHaveTheAnswersThatTheyHaveAlone) {
  std::mt19937 random(5);
  std::vector<RequestSpec> specs;
  for (int i = 0; i < 60; ++i) {
    const std::string prompt = prefix_.substr(0, random() % 100) + std::to_string(i % 7);
    specs.push_back(Spec(prompt, sets_[random() % sets_.size()]));
  }
  std::vector<std::string> alone;
  for (const RequestSpec& spec : specs) {
    alone.push_back(Generate(*StartScripted(script_), spec).text);
  }
  for (const int32_t blocks : {512, 12}) {  // with few, sequences are preempted
    script_->num_blocks = blocks;
    for (const int32_t step_tokens : {512, 40}) {
      Start({.step_tokens = step_tokens});
      script_->most_adapted = 0;
      script_->Pause();
      std::vector<std::shared_ptr<Request>> requests;
      for (const RequestSpec& spec : specs) requests.push_back(engine_->Submit(spec).value());
      script_->Resume();
      for (size_t i = 0; i < specs.size(); ++i) EXPECT_EQ(Await(requests[i]).text, alone[i]) << i;
      EXPECT_EQ(script_->violation(), "");
      EXPECT_LT(script_->most_adapted, static_cast<int32_t>(sets_.size()));  // side by side
      if (blocks > 100) {
        EXPECT_GT(script_->most_adapted, 2);
      }
    }
  }
}

TEST_F(AdaptersTest, AnswersDifferByTheirAdapters) {
  Start();
  std::set<std::string> answers;
  for (const AdapterSet& set : sets_) answers.insert(Generate(*engine_, Spec("hello", set)).text);
  EXPECT_EQ(answers.size(), sets_.size());
}

TEST_F(AdaptersTest, NumbersAreChecked) {
  Start();
  for (const AdapterSet& wrong :
       std::vector<AdapterSet>{{{2, 1}}, {{-1, 1}}, {{1, 1}, {0, 1}}, {{0, 1}, {0, 1}}}) {
    const absl::Status status = engine_->Submit(Spec("a", wrong)).status();
    EXPECT_THAT(std::string(status.message()), HasSubstr("adapters must ascend and be below 2"));
  }
}

TEST_F(AdaptersTest, AreChosenByName) {
  script_->adapters[1].scale = 0.25f;
  Start();
  const LocalGenerator generator(engine_);
  auto chosen = [&](std::optional<std::vector<AdapterChoice>> lora) {
    return generator.Prepare({.prompt = "hello", .options = {.lora = std::move(lora)}})
        .value()
        .adapters;
  };
  EXPECT_EQ(chosen(std::nullopt), (AdapterSet{{1, 0.25f}}));  // the model's own choice
  EXPECT_EQ(chosen(std::vector<AdapterChoice>()), AdapterSet());
  EXPECT_EQ(chosen({{{"rude", 2}, {"terse", 1}}}), (AdapterSet{{0, 1}, {1, 2}}));
  EXPECT_EQ(chosen({{{"rude", 0}}}), AdapterSet());
  const GenerationOptions unknown = {.lora = {{{"polite", 1}}}};
  EXPECT_EQ(
      generator.AdaptersOf(unknown).status().message(),
      "lora: the model 'scripted' has no adapter named 'polite' (its options in lm_models have "
      "'terse', 'rude')");
  for (Task task : {Task::kEmbed, Task::kScore, Task::kGenerate}) {
    EXPECT_FALSE(generator.Prepare({.task = task, .prompt = "a", .options = unknown}).ok());
    EXPECT_EQ(generator.Prepare({.task = task, .prompt = "a"}).value().adapters.size(), 1u);
  }
}

// A name is not what an answer depends on: the file is, and how much of it.
TEST_F(AdaptersTest, TheMemoKnowsAnswersByTheAdaptersContents) {
  Start();
  auto key = [this](AdapterSet adapters) {
    const LocalGenerator generator(engine_);
    return MakeMemoKey(generator, Spec("hello", std::move(adapters)), "me", false).value()->options;
  };
  std::set<std::string> keys;
  for (const AdapterSet& set : sets_) keys.insert(key(set));
  EXPECT_EQ(keys.size(), sets_.size());
  const std::string plain = key({}), terse = key({{0, 1}});
  EXPECT_THAT(terse, HasSubstr("digest of terse"));
  script_->adapters = {TwoAdapters()[1], TwoAdapters()[0]};
  script_->adapters[1].name = "brief";
  Start();
  EXPECT_EQ(key({{1, 1}}), terse);
  script_->adapters.clear();
  Start();
  EXPECT_EQ(key({}), plain);
}

TEST_F(AdaptersTest, WhatIsForeseenSharesPrefixesOfTheSameAdaptersOnly) {
  Start();
  const auto generator = std::make_shared<LocalGenerator>(engine_);
  PromptTally tally;
  for (const AdapterSet& set : {sets_[0], sets_[1], sets_[1]}) {
    for (const char* end : {"a", "b"})
      ASSERT_TRUE(tally.Take(generator, Spec(prefix_ + end, set)).ok());
  }
  const PromptTally::Totals totals = tally.Count()[0];
  EXPECT_EQ(totals.requests, 6);
  EXPECT_EQ(totals.prompts, 4);
  EXPECT_EQ(totals.tokens_shared, 200);
}

TEST_F(AdaptersTest, AreReadFromJson) {
  GenerationOptions options;
  ASSERT_TRUE(
      ParseGenerationOptions(R"({"lora":[{"name":"a"},{"scale":-2,"name":"b"}]})", &options).ok());
  EXPECT_EQ(options.lora, (std::vector<AdapterChoice>{{"a", 1}, {"b", -2}}));
  ASSERT_TRUE(ParseGenerationOptions(R"({"lora":[]})", &options).ok());
  EXPECT_EQ(options.lora, std::vector<AdapterChoice>());
  for (const auto& [json, message] : std::vector<std::pair<const char*, const char*>>{
           {R"({"lora":"a"})", "lora must be an array of objects"},
           {R"({"lora":["a"]})", "lora must be an array of objects"},
           {R"({"lora":[{}]})", "each element of lora must have a name"},
           {R"({"lora":[{"name":1}]})", "name of lora must be a string, got 1"},
           {R"({"lora":[{"name":"a","scale":"1"}]})", "scale of lora must be a number"},
           {R"({"lora":[{"name":"a","path":"a"}]})", "unknown key 'path' of lora"},
           {R"({"lora":[{"name":"a"},{"name":"a"}]})", "lora names 'a' twice"},
       }) {
    EXPECT_THAT(std::string(ParseGenerationOptions(json, &options).message()), HasSubstr(message))
        << json;
  }
}

}  // namespace
}  // namespace lm
