// Adapters (LoRA): against the model with their sums in its weights, against llama.cpp, and row by
// row in one step; and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <numeric>
#include <string>
#include <tuple>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/model/adapter_file.h"
#include "engine/model/inspect_model.h"
#include "engine/model/model.h"
#include "tests/engine/model/golden_file.h"
#include "tests/engine/model/random_adapter.h"
#include "tests/engine/model/run_model.h"
#include "tests/engine/model/small_model.h"

namespace lm {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string TempPath(absl::string_view name) {
  std::string test = testing::UnitTest::GetInstance()->current_test_info()->name();
  std::replace(test.begin(), test.end(), '/', '_');
  return absl::StrCat(testing::TempDir(), "/adapter_", test, "_", name, ".gguf");
}

// A file that goes when the test ends.
class TempFile {
 public:
  explicit TempFile(absl::string_view name) : path_(TempPath(name)) {}
  ~TempFile() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

std::vector<int32_t> Tokens(int count, int seed = 0) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(5 + (7 * i + 13 * seed + i * i % 11) % 250);
  return tokens;
}

// Feeds more of several sequences in one step, each with its adapters; the logits of all rows.
std::vector<float> Feed(LanguageModel& model,
                        const std::vector<std::pair<TestSequence*, AdapterSet>>& sequences,
                        int32_t count) {
  ModelStep step;
  for (const auto& [sequence, adapters] : sequences) {
    const int32_t begin = static_cast<int32_t>(step.tables.tokens.size());
    Append(*sequence, count, model, &step);
    AppendAdapted(begin, begin + count, adapters, &step.adapted);
    sequence->computed += count;
  }
  step.logit_rows.resize(step.tables.tokens.size());
  std::iota(step.logit_rows.begin(), step.logit_rows.end(), 0);
  return RunStep(model, std::move(step)).logits;
}

// The rms of the differences, relative to the spread of a row's logits.
double Distance(const std::vector<float>& got, const std::vector<float>& want, size_t vocab) {
  EXPECT_EQ(got.size(), want.size());
  double squares = 0;
  for (size_t row = 0; row < want.size() / vocab; ++row) {
    double mean = 0, variance = 0;
    for (size_t i = 0; i < vocab; ++i) mean += want[row * vocab + i] / vocab;
    for (size_t i = 0; i < vocab; ++i) {
      const double from_mean = want[row * vocab + i] - mean;
      variance += from_mean * from_mean / vocab;
    }
    for (size_t i = 0; i < vocab; ++i) {
      const double error = got[row * vocab + i] - want[row * vocab + i];
      squares += error * error / variance;
    }
  }
  return std::sqrt(squares / static_cast<double>(want.size()));
}

ModelOptions With(std::vector<AdapterOption> lora, std::string device = "cpu") {
  return {.device = std::move(device),
          .kv_bytes = 1 << 24,
          .kv_type = DType::kF32,
          .lora = std::move(lora),
          .least_split_bytes = 0};
}

class MergedWeightsTest : public testing::TestWithParam<std::tuple<const char*, const char*>> {};

TEST_P(MergedWeightsTest, AnAdapterIsItsSumInTheWeights) {
  const auto& [name, device] = GetParam();
  const std::string path = ModelPath(name, ".gguf");
  const TempFile file("lora"), merged("merged");
  const RandomAdapter adapter(path);
  ASSERT_GT(adapter.updates().size(), 3u);
  adapter.Write(file.path());
  adapter.Merge(path, /*scale=*/0.7f, merged.path());

  auto model = Model::Load(path, With({{.name = "a", .path = file.path()}}, device));
  ASSERT_TRUE(model.ok()) << model.status();
  auto plain = Model::Load(merged.path(), With({}, device));
  ASSERT_TRUE(plain.ok()) << plain.status();
  const size_t vocab = (*model)->language_model().vocab_size();
  TestSequence one = MakeSequence(Tokens(40), 0), other = one, base = one;
  const std::vector<float> got =
      Feed((*model)->language_model(), {{&one, {{.adapter = 0, .scale = 0.7f}}}}, 40);
  const std::vector<float> want = Feed((*plain)->language_model(), {{&other, {}}}, 40);
  EXPECT_LT(Distance(got, want, vocab), 1e-4);
  EXPECT_GT(Distance(Feed((*model)->language_model(), {{&base, {}}}, 40), want, vocab), 0.05);
}

INSTANTIATE_TEST_SUITE_P(
    All, MergedWeightsTest,
    testing::Combine(testing::Values("llama-spm-untied-f32", "qwen3-f32", "gemma3-f32", "phi3-f32",
                                     "gpt2-f32", "mixtral-f32", "gemma4-e-f32", "gemma4-moe-f32",
                                     "qwen35-f32", "qwen3next-f32", "deepseek2-f32", "lfm2moe-f32",
                                     "granitehybrid-f32", "nemotron_h_moe-f32", "falcon-h1-f32",
                                     "mamba-f32", "llama4-f32", "gpt-oss-f32"),
                     testing::Values("cpu")),
    [](const auto& info) {
      return ModelAndDevice(std::get<0>(info.param), std::get<1>(info.param));
    });
INSTANTIATE_TEST_SUITE_P(OtherDevices, MergedWeightsTest,
                         testing::Combine(testing::Values("qwen3-f32", "gemma3-f32", "mixtral-f32"),
                                          testing::Values("reference", "reference=1,cpu",
                                                          "cpu+cpu")),
                         [](const auto& info) {
                           return ModelAndDevice(std::get<0>(info.param), std::get<1>(info.param));
                         });

// What is looked up, and a head of its own.
TEST(AdapterTest, EmbeddingAndOutputAreAdapted) {
  const std::string path = ModelPath("llama-spm-untied-f32", ".gguf");
  const TempFile file("lora"), merged("merged");
  const RandomAdapter adapter(path, {.rank = 3, .alpha = 0, .changes = [](const std::string& name) {
                                       return name == "token_embd.weight" ||
                                              name == "output.weight";
                                     }});
  ASSERT_EQ(adapter.updates().size(), 2u);
  adapter.Write(file.path());
  adapter.Merge(path, /*scale=*/-0.5f, merged.path());
  auto model = Model::Load(path, With({{.name = "a", .path = file.path()}}));
  ASSERT_TRUE(model.ok()) << model.status();
  auto plain = Model::Load(merged.path(), With({}));
  ASSERT_TRUE(plain.ok()) << plain.status();
  const size_t vocab = (*model)->language_model().vocab_size();
  TestSequence one = MakeSequence(Tokens(40), 0), other = one, base = one;
  const std::vector<float> want = Feed((*plain)->language_model(), {{&other, {}}}, 40);
  EXPECT_LT(Distance(Feed((*model)->language_model(), {{&one, {{0, -0.5f}}}}, 40), want, vocab),
            1e-4);
  EXPECT_GT(Distance(Feed((*model)->language_model(), {{&base, {}}}, 40), want, vocab), 0.05);
}

class MixedRowsTest : public testing::TestWithParam<const char*> {};

// Sequences with none, one, another and both adapters, prompts and decoding, in one step: each has
// the bits that it has alone, and one without those of a model that knows no adapters.
TEST_P(MixedRowsTest, ARowHasItsBitsWhateverTheOthersAdapters) {
  const std::string path = ModelPath(GetParam(), ".gguf");
  const TempFile first("first"), second("second");
  RandomAdapter(path, {.rank = 5, .seed = 1}).Write(first.path());
  RandomAdapter(path, {.rank = 8,
                       .seed = 2,
                       .changes =
                           [](const std::string& name) {
                             return RandomAdapter::IsMultipliedBy(name) &&
                                    !absl::StrContains(name, "attn_k.");
                           }})
      .Write(second.path());
  auto model = Model::Load(
      path, With({{.name = "a", .path = first.path()}, {.name = "b", .path = second.path()}}));
  ASSERT_TRUE(model.ok()) << model.status();
  LanguageModel& language_model = (*model)->language_model();
  const std::vector<AdapterSet> sets = {
      {}, {{0, 1.0f}}, {{1, 0.5f}}, {{0, 0.25f}, {1, -1.0f}}, {{0, 1.0f}}, {}};
  constexpr int32_t kPrompt = 70, kPieces[] = {kPrompt, 1, 3};
  std::vector<std::vector<float>> alone;
  for (size_t i = 0; i < sets.size(); ++i) {
    TestSequence sequence = MakeSequence(Tokens(80, static_cast<int>(i)), 0);
    std::vector<float> logits;
    for (int32_t piece : kPieces) {
      const std::vector<float> rows = Feed(language_model, {{&sequence, sets[i]}}, piece);
      logits.insert(logits.end(), rows.begin(), rows.end());
    }
    alone.push_back(std::move(logits));
  }
  std::vector<TestSequence> sequences;
  std::vector<std::pair<TestSequence*, AdapterSet>> batch;
  for (size_t i = 0; i < sets.size(); ++i) {
    sequences.push_back(MakeSequence(Tokens(80, static_cast<int>(i)), static_cast<int32_t>(4 * i)));
    sequences.back().state = static_cast<int32_t>(i);
  }
  for (size_t i = 0; i < sets.size(); ++i) batch.push_back({&sequences[i], sets[i]});
  std::vector<std::vector<float>> together(sets.size());
  const size_t vocab = language_model.vocab_size();
  for (int32_t piece : kPieces) {
    const std::vector<float> rows = Feed(language_model, batch, piece);
    for (size_t i = 0; i < sets.size(); ++i) {
      const auto begin = rows.begin() + static_cast<int64_t>(i * piece * vocab);
      together[i].insert(together[i].end(), begin, begin + static_cast<int64_t>(piece * vocab));
    }
  }
  for (size_t i = 0; i < sets.size(); ++i) EXPECT_TRUE(together[i] == alone[i]) << i;
  EXPECT_FALSE(alone[1] == alone[4]);  // other tokens
  for (size_t i = 1; i + 1 < sets.size(); ++i) {
    TestSequence sequence = MakeSequence(Tokens(80, static_cast<int>(i)), 0);
    std::vector<float> rows = Feed(language_model, {{&sequence, {}}}, kPrompt);
    alone[i].resize(rows.size());
    EXPECT_FALSE(rows == alone[i]) << i;
  }

  auto plain = Model::Load(path, With({}));
  ASSERT_TRUE(plain.ok()) << plain.status();
  TestSequence sequence = MakeSequence(Tokens(80), 0);
  std::vector<float> rows = Feed((*plain)->language_model(), {{&sequence, {}}}, kPrompt);
  alone[0].resize(rows.size());
  EXPECT_TRUE(rows == alone[0]);
}

INSTANTIATE_TEST_SUITE_P(All, MixedRowsTest,
                         testing::Values("llama-q8_0", "qwen2-bf16", "qwen3-f32", "gemma3-q8_0",
                                         "mixtral-f32", "gpt-oss-mxfp4", "qwen35-q8_0"),
                         [](const auto& info) { return ModelAndDevice(info.param, "cpu"); });

// Rows whose results are wanted are few: the last layer goes on with these alone, in their order.
TEST(AdapterTest, RowsKeepTheirAdaptersWhereTheLastLayerGoesOnWithAFew) {
  const std::string path = ModelPath("mixtral-f32", ".gguf");
  const TempFile file("lora");
  RandomAdapter(path).Write(file.path());
  auto model = Model::Load(path, With({{.name = "a", .path = file.path()}}));
  ASSERT_TRUE(model.ok()) << model.status();
  LanguageModel& language_model = (*model)->language_model();
  const AdapterSet adapted = {{0, 1.0f}};
  TestSequence one = MakeSequence(Tokens(20, 1), 0), two = MakeSequence(Tokens(20, 2), 1);
  TestSequence first = one, second = two;
  const size_t vocab = language_model.vocab_size();
  const std::vector<float> all = Feed(language_model, {{&one, adapted}, {&two, {}}}, 20);
  ModelStep step;
  Append(first, 20, language_model, &step);
  Append(second, 20, language_model, &step);
  AppendAdapted(0, 20, adapted, &step.adapted);
  step.logit_rows = {3, 19, 25, 39};
  step.hidden_rows = {10, 39};
  const StepResults results = RunStep(language_model, std::move(step));
  std::vector<float> wanted;
  for (int64_t row : {3, 19, 25, 39}) {
    const auto begin = all.begin() + static_cast<int64_t>(row * vocab);
    wanted.insert(wanted.end(), begin, begin + static_cast<int64_t>(vocab));
  }
  EXPECT_TRUE(results.logits == wanted);
}

class GoldenAdapterTest : public testing::TestWithParam<std::tuple<const char*, const char*>> {};

// The peer's logits with the adapter that RandomAdapter makes of its defaults, at a scale of 0.7
// (testdata/README.md).
TEST_P(GoldenAdapterTest, AgreesWithLlamaCpp) {
  const auto& [name, device] = GetParam();
  const std::string path = ModelPath(name, ".gguf");
  const std::vector<float> want = ReadFloats(ModelPath(absl::StrCat(name, "-lora"), ".f32"));
  const TempFile file("lora");
  RandomAdapter(path).Write(file.path());
  auto model = Model::Load(path, With({{.name = "a", .path = file.path()}}, device));
  ASSERT_TRUE(model.ok()) << model.status();
  const size_t vocab = (*model)->language_model().vocab_size();
  TestSequence sequence = MakeSequence(Tokens(24), 0);
  const std::vector<float> got =
      Feed((*model)->language_model(), {{&sequence, {{.adapter = 0, .scale = 0.7f}}}}, 24);
  const bool gelu = absl::StartsWith(name, "gemma");  // from the peer's table of 16-bit floats
  EXPECT_LT(Distance(got, want, vocab), gelu ? 2e-3 : 5e-5);
}

INSTANTIATE_TEST_SUITE_P(All, GoldenAdapterTest,
                         testing::Combine(testing::Values("llama-spm-untied-f32", "qwen3-f32",
                                                          "gemma3-f32", "mixtral-f32"),
                                          testing::Values("cpu", "reference", "cpu+cpu")),
                         [](const auto& info) {
                           return ModelAndDevice(std::get<0>(info.param), std::get<1>(info.param));
                         });

// A file for SmallModel whose parts can be changed or left out.
struct SmallAdapter {
  std::map<std::string, std::string> keys = {
      {"general.type", "adapter"}, {"adapter.type", "lora"}, {"general.architecture", "llama"}};
  std::map<std::string, double> numbers = {};
  std::map<std::string, std::vector<uint64_t>> tensors = {{"blk.0.attn_q.weight.lora_a", {32, 4}},
                                                          {"blk.0.attn_q.weight.lora_b", {4, 32}}};
  float value = 0.5f;

  absl::StatusOr<std::unique_ptr<Model>> Load() const {
    GgufBuilder builder;
    for (const auto& [key, text] : keys) builder.Add(key, text);
    for (const auto& [key, number] : numbers) builder.Add(key, number);
    for (const auto& [name, dims] : tensors) {
      builder.AddTensor(name, kGgmlF32, dims, Bytes(std::vector<float>(dims[0] * dims[1], value)));
    }
    const TempFile file("small");
    std::ofstream(file.path(), std::ios::binary) << builder.Build();
    return SmallModel().Load(With({{.name = "tone", .path = file.path()}}));
  }
  // All the words are in the error.
  void Refused(std::initializer_list<const char*> words) const {
    const auto model = Load();
    ASSERT_FALSE(model.ok());
    const std::string message(model.status().message());
    EXPECT_THAT(message, HasSubstr("adapter 'tone'"));
    for (const char* word : words) EXPECT_THAT(message, HasSubstr(word));
  }
};

TEST(AdapterFileTest, WhatItHasIsKnown) {
  const auto model = SmallAdapter().Load();
  ASSERT_TRUE(model.ok()) << model.status();
  const auto plain = SmallModel().Load();
  ASSERT_TRUE(plain.ok());
  const ModelInfo& info = (*model)->info();
  ASSERT_EQ(info.adapters.size(), 1u);
  EXPECT_EQ(info.adapters[0].name, "tone");
  EXPECT_EQ(info.adapters[0].scale, 1);
  EXPECT_EQ(info.adapters[0].bytes, 2 * 32 * 4 * 4);
  EXPECT_EQ(info.adapters[0].digest.size(), 32u);
  EXPECT_EQ(info.weight_bytes, (*plain)->info().weight_bytes + info.adapters[0].bytes);
  EXPECT_EQ((*model)->digest().Get().value(), (*plain)->digest().Get().value());
  EXPECT_EQ(info.parameters, (*plain)->info().parameters);
}

TEST(AdapterFileTest, WhatIsNoAdapterOfThisModelIsRefusedByName) {
  auto changed = [](const char* key, const char* value) {
    SmallAdapter adapter;
    adapter.keys[key] = value;
    return adapter;
  };
  changed("general.type", "model").Refused({"'general.type' must be 'adapter', got 'model'"});
  changed("adapter.type", "ia3").Refused({"'adapter.type' must be 'lora', got 'ia3'"});
  changed("general.architecture", "qwen3")
      .Refused({"'general.architecture' must be 'llama', got 'qwen3'"});
  SmallAdapter empty;
  empty.tensors.clear();
  empty.Refused({"it has no tensors"});
  changed("adapter.alora.invocation_tokens", "x").Refused({"adapter.alora.invocation_tokens"});
  changed("adapter.lora.alpha", "x").Refused({"adapter.lora.alpha"});
  SmallAdapter large;
  large.numbers["adapter.lora.alpha"] = 1e300;  // infinite as the factor that it becomes
  large.Refused({"adapter.lora.alpha", "1e+300"});
}

TEST(AdapterFileTest, TensorsThatDoNotFitAreNamedWithBothShapes) {
  auto changed = [](const char* name, std::vector<uint64_t> dims) {
    SmallAdapter adapter;
    if (dims.empty()) {
      adapter.tensors.erase(name);
    } else {
      adapter.tensors[name] = std::move(dims);
    }
    return adapter;
  };
  changed("blk.0.attn_q.weight.lora_a", {})
      .Refused(
          {"'blk.0.attn_q.weight.lora_b' is there, but 'blk.0.attn_q.weight.lora_a' is missing"});
  changed("blk.0.attn_q.weight.lora_b", {}).Refused({"'blk.0.attn_q.weight.lora_b' is missing"});
  changed("blk.0.attn_q.weight.lora_a", {16, 4})
      .Refused({"'blk.0.attn_q.weight.lora_a' must be 4 x 32, got 4 x 16"});
  changed("blk.0.attn_q.weight.lora_a", {32, 8})
      .Refused({"'blk.0.attn_q.weight.lora_a' must be 4 x 32, got 8 x 32"});
  changed("blk.0.attn_q.weight.lora_b", {4, 48})
      .Refused({"'blk.0.attn_q.weight.lora_b' must be 32 x 4, got 48 x 4"});
  SmallAdapter more;
  more.tensors["blk.1.attn_q.weight.lora_a"] = {32, 4};
  more.tensors["blk.1.attn_q.weight.lora_b"] = {4, 32};
  more.Refused({"'blk.1.attn_q.weight.lora_a' is of 'blk.1.attn_q.weight', which the model does"});
  SmallAdapter norm;
  norm.tensors["blk.0.attn_norm.weight"] = {32, 1};
  norm.Refused({"'blk.0.attn_norm.weight' is neither"});
  SmallAdapter of_norm;
  of_norm.tensors["blk.0.attn_norm.weight.lora_a"] = {32, 4};
  of_norm.tensors["blk.0.attn_norm.weight.lora_b"] = {4, 1};
  of_norm.Refused({"'blk.0.attn_norm.weight.lora_a'", "which adapters cannot change here"});
  SmallAdapter infinite;
  infinite.value = INFINITY;
  infinite.Refused({"'blk.0.attn_q.weight.lora_", "inf"});
}

TEST(AdapterFileTest, ADamagedFileIsAnError) {
  const TempFile file("damaged");
  const std::string whole = RandomAdapter(ModelPath("qwen3-f32", ".gguf")).Build();
  for (size_t size : {size_t{0}, size_t{20}, whole.size() / 2, whole.size() - 1}) {
    std::ofstream(file.path(), std::ios::binary) << whole.substr(0, size);
    const auto model =
        Model::Load(ModelPath("qwen3-f32", ".gguf"), With({{.name = "tone", .path = file.path()}}));
    ASSERT_FALSE(model.ok()) << size;
    EXPECT_THAT(std::string(model.status().message()),
                AllOf(HasSubstr("adapter 'tone'"), HasSubstr(file.path())))
        << size;
  }
  const auto absent =
      Model::Load(ModelPath("qwen3-f32", ".gguf"), With({{.name = "tone", .path = "no.gguf"}}));
  EXPECT_THAT(std::string(absent.status().message()), HasSubstr(ModelPath("no", ".gguf")));
}

TEST(AdapterFileTest, IsNoModelItself) {
  const TempFile file("lora");
  RandomAdapter(ModelPath("qwen3-f32", ".gguf")).Write(file.path());
  const auto model = Model::Load(file.path(), With({}));
  ASSERT_FALSE(model.ok());
  EXPECT_THAT(std::string(model.status().message()), HasSubstr("it is an adapter (LoRA)"));
  const std::atomic<bool> cancel{false};
  const auto report = InspectModel(file.path(), DType::kF16, "cpu", cancel);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->architecture, "qwen3");
  EXPECT_GT(report->parameters, 0);
  EXPECT_THAT(report->problem,
              AllOf(HasSubstr("it is an adapter (LoRA)"), testing::Not(HasSubstr("tokenizer"))));
}

TEST(AdapterOptionsTest, AreReadFromJson) {
  ModelOptions options;
  ASSERT_TRUE(
      ParseModelOptions(
          R"({"lora":[{"name":"a","path":"a.gguf"},{"name":"b","path":"/b","scale":-0.5}]})",
          &options)
          .ok());
  EXPECT_EQ(options.lora, (std::vector<AdapterOption>{{"a", "a.gguf", 1}, {"b", "/b", -0.5f}}));
  for (const auto& [json, message] : std::vector<std::pair<const char*, const char*>>{
           {R"({"lora":{"name":"a"}})", "lora must be an array of objects"},
           {R"({"lora":["a"]})", "lora must be an array of objects"},
           {R"({"lora":[{"name":"a"}]})", "must have a name and a path"},
           {R"({"lora":[{"path":"a"}]})", "must have a name and a path"},
           {R"({"lora":[{"name":1,"path":"a"}]})", "name of lora must be a string, got 1"},
           {R"({"lora":[{"name":"a","path":"a","scale":"1"}]})", "scale of lora must be a number"},
           {R"({"lora":[{"name":"a","path":"a","scale":1e300}]})",
            "scale of lora must be a number"},
           {R"({"lora":[{"name":"a","path":"a","rank":4}]})", "unknown key 'rank' of lora"},
           {R"({"lora":[{"name":"a","path":"a"},{"name":"a","path":"b"}]})",
            "lora has two adapters named 'a'"},
       }) {
    const absl::Status status = ParseModelOptions(json, &options);
    EXPECT_THAT(std::string(status.message()), HasSubstr(message)) << json;
  }
}

TEST(AdapterSetTest, RunsAreFoundAmongRows) {
  std::vector<AdaptedRows> runs;
  const AdapterSet a = {{0, 1}}, b = {{1, 1}};
  AppendAdapted(2, 4, a, &runs);
  AppendAdapted(4, 6, a, &runs);
  AppendAdapted(6, 7, {}, &runs);
  AppendAdapted(7, 9, b, &runs);
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(runs[0].end, 6);
  const auto among = AdaptedAmong(runs, std::vector<int32_t>{0, 3, 5, 6, 8, 2, 7});
  ASSERT_EQ(among.size(), 4u);
  EXPECT_EQ(among[0].begin, 1);
  EXPECT_EQ(among[0].end, 3);
  EXPECT_EQ(among[1].adapters, b);
  EXPECT_EQ(among[2].begin, 5);
  EXPECT_EQ(among[3].begin, 6);
  EXPECT_TRUE(AdaptedAmong({}, std::vector<int32_t>{1, 2}).empty());
}

}  // namespace
}  // namespace lm
