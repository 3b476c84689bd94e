// Engines that share a prefix store, one after the other as processes do, on real models.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <random>

#include "absl/strings/str_cat.h"
#include "engine/runtime/engine.h"
#include "tests/testdata.h"

namespace lm {
namespace {

using testing::HasSubstr;

constexpr char kLlama[] = LM_TESTDATA "/models/llama-q8_0.gguf";

class StoredPrefixTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = (std::filesystem::path(testing::TempDir()) /
               absl::StrCat("stored-", getpid(), "-",
                            testing::UnitTest::GetInstance()->current_test_info()->name()))
                  .string();
    std::filesystem::remove_all(folder_);
    std::mt19937 random(11);
    std::vector<int32_t> shared(150);
    for (int32_t& token : shared) token = 3 + static_cast<int32_t>(random() % 250);
    for (int i = 0; i < 12; ++i) {
      RequestSpec spec{.prompt = shared, .salt = "file:/a.db"};
      for (int n = 0; n < 5 + i; ++n) {
        spec.prompt.push_back(3 + static_cast<int32_t>(random() % 250));
      }
      spec.options.max_tokens = 20;
      if (i % 2 == 1) spec.options.temperature = 0.8;
      specs_.push_back(std::move(spec));
    }
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::shared_ptr<Engine> Start(ModelOptions options = {}, const std::string& model = kLlama) {
    options.threads = 1;
    options.prefix_store = folder_;
    auto loaded = Model::Load(model, options);
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    return Engine::Start(*std::move(loaded), {}).value();
  }

  static std::vector<Generation> Run(Engine& engine, const std::vector<RequestSpec>& specs) {
    std::vector<std::shared_ptr<Request>> requests;
    for (const RequestSpec& spec : specs) requests.push_back(engine.Submit(spec).value());
    std::vector<Generation> results;
    for (const auto& request : requests) {
      EXPECT_TRUE(request->WaitFor(absl::Seconds(60)));
      EXPECT_TRUE(request->result().status.ok()) << request->result().status;
      results.push_back(request->result());
    }
    return results;
  }

  static void ExpectSame(const std::vector<Generation>& a, const std::vector<Generation>& b) {
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) {
      EXPECT_EQ(a[i].tokens, b[i].tokens) << i;
      EXPECT_EQ(a[i].text, b[i].text) << i;
    }
  }

  std::vector<std::string> Files() const {
    std::vector<std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      files.push_back(entry.path().string());
    }
    return files;
  }

  std::string folder_;
  std::vector<RequestSpec> specs_;
};

TEST_F(StoredPrefixTest, TheNextProcessComputesWhatIsItsOwnOnly) {
  std::vector<Generation> first;
  {
    auto engine = Start();
    first = Run(*engine, specs_);
    EXPECT_EQ(first[0].tokens_cached, 0);
    engine->Stop();
    EXPECT_EQ(engine->stored().state(), "1 prefix");
    ASSERT_EQ(engine->stored().List("file:/a.db").size(), 1u);
    EXPECT_EQ(engine->stored().List("file:/a.db")[0].tokens.size(), 150u);
    EXPECT_TRUE(engine->stored().List("file:/b.db").empty());
  }
  for (const int alone : {true, false}) {
    auto engine = Start();
    std::vector<Generation> again;
    if (alone) {
      for (const RequestSpec& spec : specs_) again.push_back(Run(*engine, {spec})[0]);
    } else {
      again = Run(*engine, specs_);
    }
    ExpectSame(first, again);
    EXPECT_EQ(again[0].tokens_cached, 150);
    EXPECT_GE(engine->Stats().tokens_reused, 150 * 12);
  }
}

TEST_F(StoredPrefixTest, WhatIsUsedOnceIsNotStored) {
  auto engine = Start();
  Run(*engine, {specs_[0]});
  engine->Stop();
  EXPECT_EQ(engine->stored().state(), "0 prefixes");
}

TEST_F(StoredPrefixTest, WhatIsInMemoryCountsAsUsedWithWhatIsReadBehindIt) {
  RequestSpec begins = specs_[0], longer = specs_[0];
  for (int32_t n = 0; n < 95; ++n) longer.prompt.push_back(3 + n);
  begins.store = {150};
  longer.store = {249};
  Run(*Start(), {begins, longer});
  ASSERT_EQ(Files().size(), 2u);
  auto engine = Start();
  EXPECT_EQ(Run(*engine, {begins})[0].tokens_cached, 150);
  const auto now = std::filesystem::file_time_type::clock::now();
  for (const std::string& file : Files()) {
    std::filesystem::last_write_time(file, now - std::chrono::hours(1));
  }
  EXPECT_EQ(Run(*engine, {longer})[0].tokens_cached, 249);
  for (const std::string& file : Files()) {
    EXPECT_GT(std::filesystem::last_write_time(file), now - std::chrono::minutes(1));
  }
}

TEST_F(StoredPrefixTest, OfAnotherDatabaseTypeOrContextNothingIsFound) {
  Run(*Start(), specs_);
  RequestSpec other = specs_[0];
  other.salt = "file:/b.db";
  EXPECT_EQ(Run(*Start(), {other})[0].tokens_cached, 0);
  EXPECT_EQ(Run(*Start({.kv_type = DType::kI8}), {specs_[0]})[0].tokens_cached, 0);
  EXPECT_EQ(Run(*Start({.context_length = 200}), {specs_[0]})[0].tokens_cached, 0);
  EXPECT_EQ(Run(*Start(), {specs_[0]})[0].tokens_cached, 150);
}

TEST_F(StoredPrefixTest, ADamagedFileIsComputedAgain) {
  std::vector<Generation> first;
  { first = Run(*Start(), specs_); }
  ASSERT_EQ(Files().size(), 1u);
  {
    std::fstream file(Files()[0], std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-10, std::ios::end);
    file.write("xyz", 3);
  }
  auto engine = Start();
  const std::vector<Generation> again = Run(*engine, specs_);
  ExpectSame(first, again);
  EXPECT_EQ(again[0].tokens_cached, 0);
  EXPECT_THAT(engine->stored().state(), HasSubstr("has damaged blocks"));
  engine = nullptr;
  EXPECT_EQ(Run(*Start(), {specs_[0]})[0].tokens_cached, 150);  // it was written again
}

TEST_F(StoredPrefixTest, WhoFoundAFileDamagedWritesWhatWasAskedFor) {
  RequestSpec spec = specs_[0];
  spec.store = {150};
  Run(*Start(), {spec});
  ASSERT_EQ(Files().size(), 1u);
  {
    std::fstream file(Files()[0], std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-10, std::ios::end);
    file.write("xyz", 3);
  }
  EXPECT_EQ(Run(*Start(), {spec})[0].tokens_cached, 0);
  EXPECT_EQ(Run(*Start(), {spec})[0].tokens_cached, 150);
}

TEST_F(StoredPrefixTest, WhatIsAskedForIsStoredBehindWhatWasRead) {
  RequestSpec longer = specs_[0];
  for (int32_t n = 0; n < 95; ++n) longer.prompt.push_back(3 + n);
  longer.store = {150, 249};
  for (const std::string model : {"llama-q8_0.gguf", "gemma3-f32.gguf", "qwen35-q8_0.gguf"}) {
    SCOPED_TRACE(model);
    std::filesystem::remove_all(folder_);
    const std::string path = LM_TESTDATA "/models/" + model;
    RequestSpec begins = specs_[0];
    begins.store = {150};
    Run(*Start({}, path), {begins});
    std::vector<Generation> first;
    {
      auto engine = Start({}, path);
      first = Run(*engine, {longer});
      EXPECT_EQ(first[0].tokens_cached, 150);
      EXPECT_TRUE(engine->stored().Flush(absl::Minutes(1)));
      const std::vector<PrefixStore::Listed> listed = engine->stored().List("file:/a.db");
      ASSERT_EQ(listed.size(), 2u);
      EXPECT_EQ(listed[0].tokens.size(), 150u);
      EXPECT_EQ(listed[1].tokens.size(), 249u);
    }
    const std::vector<Generation> again = Run(*Start({}, path), {longer});
    ExpectSame(first, again);
    EXPECT_EQ(again[0].tokens_cached, 249);
  }
}

TEST_F(StoredPrefixTest, WithLittleMemoryAnswersAreTheSame) {
  const std::vector<Generation> first = Run(*Start(), specs_);
  auto roomy = Start();
  const int64_t block = roomy->model().language_model().cache().classes[0].block_bytes;
  roomy = nullptr;
  for (const int64_t blocks : {7, 8, 12}) {
    auto engine = Start({.kv_bytes = blocks * block});
    ExpectSame(first, Run(*engine, specs_));
  }
}

// Of windows, of states, of both, of layers whose blocks are empty.
TEST_F(StoredPrefixTest, ModelsWithWindowsAndStatesToo) {
  for (const std::string model :
       {"gemma3-f32.gguf", "qwen35-q8_0.gguf", "lfm2moe-f32.gguf", "mamba2-f32.gguf",
        "rwkv7-f32.gguf", "falcon-h1-f32.gguf", "kimi-linear-f32.gguf", "deepseek4-f32.gguf"}) {
    SCOPED_TRACE(model);
    std::filesystem::remove_all(folder_);
    const std::string path = LM_TESTDATA "/models/" + model;
    std::vector<RequestSpec> specs = specs_;
    for (RequestSpec& spec : specs) spec.borders = {150};
    const std::vector<Generation> first = Run(*Start({}, path), specs);
    EXPECT_EQ(first[0].tokens_cached, 0);
    for (const bool alone : {true, false}) {
      auto engine = Start({}, path);
      EXPECT_THAT(engine->stored().state(), testing::StartsWith("1 prefix"));
      std::vector<Generation> again;
      if (alone) {
        for (const RequestSpec& spec : specs) again.push_back(Run(*engine, {spec})[0]);
      } else {
        again = Run(*engine, specs);
      }
      ExpectSame(first, again);
      EXPECT_EQ(again[0].tokens_cached, 150);
      EXPECT_GE(engine->Stats().tokens_reused, 150 * 12);
    }
  }
}

// Prompts of several beginnings in turn: where there is room for few of them, each is forgotten
// before it comes again.
TEST_F(StoredPrefixTest, WhatMemoryHasNoRoomForComesBack) {
  for (const std::string model : {"llama-q8_0.gguf", "gemma3-f32.gguf", "qwen35-q8_0.gguf"}) {
    SCOPED_TRACE(model);
    std::filesystem::remove_all(folder_);
    const std::string path = LM_TESTDATA "/models/" + model;
    constexpr int kBeginnings = 6, kTurns = 4;
    std::vector<RequestSpec> specs;
    for (int turn = 0; turn < kTurns; ++turn) {
      for (int i = 0; i < kBeginnings; ++i) {
        RequestSpec spec = specs_[turn];
        spec.prompt[0] = 3 + i;
        specs.push_back(spec);
      }
    }
    int64_t bytes = 0;
    std::vector<Generation> expected;
    {
      auto roomy = Start({}, path);
      for (const RequestSpec& spec : specs) {
        RequestSpec elsewhere = spec;
        elsewhere.salt = "connection:1";  // of which nothing is stored
        expected.push_back(Run(*roomy, {elsewhere})[0]);
      }
      EXPECT_EQ(roomy->stored().state(), "0 prefixes");
      bytes = 4 * roomy->stored().BytesOf(192);
    }
    auto engine = Start({.kv_bytes = bytes}, path);
    std::vector<Generation> got;
    for (const RequestSpec& spec : specs) {
      got.push_back(Run(*engine, {spec})[0]);
      EXPECT_TRUE(engine->stored().Flush(absl::Minutes(1)));
    }
    ExpectSame(expected, got);
    // The second turn writes what the third and fourth read: 128 tokens, in whole blocks.
    for (size_t i = 2 * kBeginnings; i < specs.size(); ++i) EXPECT_GE(got[i].tokens_cached, 128);
    EXPECT_EQ(got[0].tokens_cached, 0);
    EXPECT_EQ(engine->stored().List("file:/a.db").size(), size_t{kBeginnings});
    ExpectSame(expected, Run(*engine, specs));  // all at once
    EXPECT_EQ(engine->Stats().failed, 0);
  }
}

TEST_F(StoredPrefixTest, WhatAdaptersHaveMadeIsFoundWithThemOnly) {
  const ModelOptions options = {
      .lora = {{.name = "one", .path = LM_TESTDATA "/models/llama-q8_0-lora-1.gguf", .scale = 0}}};
  std::vector<RequestSpec> with = specs_;
  for (RequestSpec& spec : with) spec.adapters = {{.adapter = 0, .scale = 1}};
  const std::vector<Generation> first = Run(*Start(options), with);
  EXPECT_EQ(first[0].tokens_cached, 0);
  EXPECT_EQ(Run(*Start(options), {specs_[0]})[0].tokens_cached, 0);
  RequestSpec less = with[0];
  less.adapters[0].scale = 0.5;
  EXPECT_EQ(Run(*Start(options), {less})[0].tokens_cached, 0);
  auto engine = Start(options);
  const std::vector<Generation> again = Run(*engine, with);
  ExpectSame(first, again);
  EXPECT_EQ(again[0].tokens_cached, 150);
  ASSERT_FALSE(engine->stored().List("file:/a.db").empty());
  EXPECT_EQ(engine->stored().List("file:/a.db")[0].adapters, R"([{"name":"one","scale":1.0}])");
}

// Blocks with the layer for multi-token prediction, and without.
TEST_F(StoredPrefixTest, AnotherLayoutOfTheCacheHasFilesOfItsOwn) {
  const std::string model = LM_TESTDATA "/models/glm4moe-mtp-f32.gguf";
  std::vector<Generation> first;
  for (const int turn : {0, 1}) {
    for (const bool mtp : {true, false}) {
      auto engine = Start({.mtp = mtp}, model);
      const std::vector<Generation> got = Run(*engine, specs_);
      if (first.empty()) first = got;
      ExpectSame(first, got);
      EXPECT_EQ(got[0].tokens_cached, turn == 0 ? 0 : 150);
      engine->Stop();
      EXPECT_EQ(engine->stored().state(), "1 prefix");
    }
  }
  EXPECT_EQ(Files().size(), 2u);
}

TEST_F(StoredPrefixTest, RequestsMayBeGivenUpWhileTheirPrefixIsRead) {
  Run(*Start(), specs_);
  for (int turn = 0; turn < 20; ++turn) {
    auto engine = Start();
    std::vector<std::shared_ptr<Request>> requests;
    for (const RequestSpec& spec : specs_) requests.push_back(engine->Submit(spec).value());
    if (turn % 2 == 0) {
      for (const auto& request : requests) request->Cancel();
      // More, if the first one came to its own rows before it was given up.
      EXPECT_GE(Run(*engine, {specs_[0]})[0].tokens_cached, 150);
    }
    engine->Stop();
    for (const auto& request : requests) {
      ASSERT_TRUE(request->WaitFor(absl::Seconds(60)));
      const absl::Status& status = request->result().status;
      EXPECT_TRUE(status.ok() || absl::IsCancelled(status)) << status;
    }
  }
}

}  // namespace
}  // namespace lm
