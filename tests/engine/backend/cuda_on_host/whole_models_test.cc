// Whole models on the CUDA backend, its kernels on the host: the text of the CPU backend. By hand
// LM_CUDA_MODELS=all takes all language models of tests/testdata/models.
#include <dirent.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "engine/runtime/engine.h"
#include "tests/engine/backend/cuda_on_host/runtime_counts.h"
#include "tests/engine/backend/cuda_on_host/simulation.h"
#include "tests/engine/model/golden_file.h"
#include "tests/engine/model/run_model.h"

namespace lm {
namespace {

constexpr int kPrompts = 3;

// A Llama of int8 weights, a mixture of experts of MXFP4 with sinks and windows, attention beside
// gated delta nets, norms around everything with softcaps, mixtures with an expert that sees every
// row, one of them under a router of its own groups, and one that guesses itself.
std::vector<std::string> ModelsToRun() {
  const char* asked = std::getenv("LM_CUDA_MODELS");
  if (asked == nullptr) {
    return {"llama-q8_0",    "gpt-oss-mxfp4", "qwen35-q8_0",    "gemma2-f32",
            "qwen3next-f32", "deepseek2-f32", "glm4moe-mtp-f32"};
  }
  if (absl::string_view(asked) != "all") return absl::StrSplit(asked, ',');
  std::vector<std::string> names;
  DIR* folder = opendir(LM_TESTDATA "/models");
  while (const dirent* entry = readdir(folder)) {
    const std::string name = entry->d_name;
    const bool writes = !absl::StrContains(name, "bert") && !absl::StrContains(name, "embedding") &&
                        !absl::StrContains(name, "rerank") && !absl::StrContains(name, "lora");
    if (writes && absl::EndsWith(name, ".gguf")) names.push_back(name.substr(0, name.size() - 5));
  }
  closedir(folder);
  std::sort(names.begin(), names.end());
  return names;
}

std::shared_ptr<Engine> StartOn(const std::string& model, const std::string& device) {
  auto loaded =
      Model::Load(ModelPath(model, ".gguf"),
                  {.device = device, .threads = 1, .kv_bytes = 1 << 24, .kv_type = DType::kF16});
  EXPECT_TRUE(loaded.ok()) << loaded.status();
  if (!loaded.ok()) return nullptr;
  return Engine::Start(*std::move(loaded), {.step_tokens = 48}).value();
}

// Answers of the first prompts, computed together; prompt i + 1 shares a part of prompt i.
std::vector<Generation> AnswersOf(Engine* engine, int max_tokens, int prompts = kPrompts,
                                  const GenerationOptions& options = {}) {
  std::vector<std::shared_ptr<Request>> requests;
  const int vocab = engine->model().info().vocab_size;
  for (int i = 0; i < prompts; ++i) {
    RequestSpec spec;
    for (int k = 0; k < 40 + 7 * i; ++k)
      spec.prompt.push_back(3 + (k * k * 31 + 7 * k) % (vocab - 3));
    spec.prompt.back() = 3 + i;
    spec.options = options;
    spec.options.max_tokens = max_tokens;
    // Guesses of the model itself are computed on the device, too.
    const bool guesses = engine->model().language_model().has_mtp();
    spec.options.speculate = guesses ? Speculate::kAlways : Speculate::kOff;
    requests.push_back(engine->Submit(std::move(spec)).value());
  }
  std::vector<Generation> answers;
  for (const auto& request : requests) {
    EXPECT_TRUE(request->WaitFor(absl::Minutes(20)));
    answers.push_back(request->result());
  }
  return answers;
}

class WholeModelsTest : public testing::TestWithParam<std::string> {};

TEST_P(WholeModelsTest, WriteTheTextOfTheCpu) {
  const int64_t faults = on_host::NumFaults();
  const auto cpu = StartOn(GetParam(), "cpu");
  const auto cuda = StartOn(GetParam(), "cuda:0");
  ASSERT_NE(cpu, nullptr);
  ASSERT_NE(cuda, nullptr);
  const std::vector<Generation> wanted = AnswersOf(cpu.get(), 10), got = AnswersOf(cuda.get(), 10);
  for (int i = 0; i < kPrompts; ++i) {
    ASSERT_TRUE(wanted[i].status.ok()) << wanted[i].status;
    ASSERT_TRUE(got[i].status.ok()) << got[i].status;
    EXPECT_GT(wanted[i].tokens_out, 0);
    EXPECT_EQ(got[i].text, wanted[i].text) << "prompt " << i;
    EXPECT_EQ(got[i].tokens_out, wanted[i].tokens_out);
  }
  EXPECT_EQ(on_host::NumFaults(), faults);
}

INSTANTIATE_TEST_SUITE_P(Models, WholeModelsTest, testing::ValuesIn(ModelsToRun()),
                         [](const testing::TestParamInfo<std::string>& info) {
                           return ModelAndDevice(info.param, "cuda");
                         });

// The hidden states of all tokens of encoders, whose texts are computed together: those of the CPU,
// with keys and values of F16, which tensor cores take; and of each text alone the same bits.
class EncodersTest : public testing::TestWithParam<std::string> {};

TEST_P(EncodersTest, SayWhatTheCpuSaysInF16) {
  const int64_t faults = on_host::NumFaults();
  auto load = [](const std::string& device, std::optional<DType> kv_type) {
    return Model::Load(ModelPath(GetParam(), ".gguf"),
                       {.device = device, .threads = 1, .kv_bytes = 1 << 24, .kv_type = kv_type})
        .value();
  };
  std::vector<std::vector<int32_t>> texts;
  for (const int size : {1, 17, 60}) {
    texts.emplace_back();
    for (int i = 0; i < size; ++i) texts.back().push_back(5 + (7 * i + 13 * size) % 290);
  }
  auto hidden_of = [](Model& model, const std::vector<std::vector<int32_t>>& some) {
    ModelStep step;
    int32_t block = 0;
    for (const std::vector<int32_t>& text : some) {
      const auto size = static_cast<int32_t>(text.size());
      Append(MakeSequence(text, block), size, model.language_model(), &step);
      block += BlocksFor(size);
      for (int32_t i = 0; i < size; ++i) {
        step.hidden_rows.push_back(static_cast<int32_t>(step.hidden_rows.size()));
      }
    }
    return RunStep(model.language_model(), std::move(step)).hidden;
  };
  const auto cpu = load("cpu", DType::kF32);
  const std::vector<float> wanted = hidden_of(*cpu, texts);
  double squares = 0;
  for (const float value : wanted) squares += double{value} * value;
  const double rms = std::sqrt(squares / static_cast<double>(wanted.size()));
  for (const char* device : {"cuda:0", "cuda:0=1,cpu"}) {
    SCOPED_TRACE(device);
    const auto cuda = load(device, std::nullopt);
    ASSERT_EQ(cuda->info().kv_type, DType::kF16);
    const std::vector<float> got = hidden_of(*cuda, texts);
    ASSERT_EQ(got.size(), wanted.size());
    // As far as int16's may be on CPUs (golden_embeddings_test.cc).
    double most = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      most = std::max(most, std::abs(double{got[i]} - wanted[i]));
    }
    EXPECT_LT(most, 0.012 * rms);
    std::vector<float> alone;
    for (const std::vector<int32_t>& text : texts) {
      const std::vector<float> one = hidden_of(*cuda, {text});
      alone.insert(alone.end(), one.begin(), one.end());
    }
    EXPECT_EQ(alone, got);
  }
  EXPECT_EQ(load("cuda:0", DType::kF16)->info().kv_type, DType::kF16);
  EXPECT_EQ(load("cuda:0", DType::kI8)->info().kv_type, DType::kF16);
  EXPECT_EQ(load("cuda:0", DType::kF32)->info().kv_type, DType::kF32);
  EXPECT_EQ(on_host::NumFaults(), faults);
}

// With windows, slopes, and neither; a reranker.
INSTANTIATE_TEST_SUITE_P(Models, EncodersTest,
                         testing::Values("bert-rerank-f32", "jina-bert-v2-f32", "modern-bert-f32",
                                         "gemma-embedding-f32"),
                         [](const testing::TestParamInfo<std::string>& info) {
                           return ModelAndDevice(info.param, "cuda");
                         });

// Steps that begin before the one before has been read write what steps one by one do, which those
// are that guess all they can: also where tokens are drawn, what came before counts, a grammar says
// what may come, or the host has to pick, for whose tokens others stand in meanwhile.
class QueuedStepsTest : public testing::TestWithParam<std::string> {};

TEST_P(QueuedStepsTest, WriteTheSameText) {
  const int64_t faults = on_host::NumFaults();
  const auto engine = StartOn(GetParam(), "cuda:0");
  ASSERT_NE(engine, nullptr);
  ASSERT_TRUE(engine->model().language_model().queues_steps());
  std::vector<GenerationOptions> kinds(7);
  kinds[1].temperature = 0.9;
  kinds[2].repeat_penalty = 1.3;
  kinds[3].constraint = {AnswerConstraint::Kind::kRegex, "[a-z ]{5,40}"};
  kinds[4].stop = {"e"};
  for (int32_t i = 0; i < 200; ++i) kinds[5].logit_bias.push_back({10 + i, 0.5});
  kinds[6].constraint = {
      AnswerConstraint::Kind::kSchema,
      R"({"type":"object","required":["name","colour"],"additionalProperties":false,
          "properties":{"name":{"type":"string","maxLength":9},"colour":{"enum":["red","blue"]}}})"};
  std::vector<std::string> wanted;
  for (const Speculate speculate : {Speculate::kAlways, Speculate::kOff}) {
    std::vector<std::shared_ptr<Request>> requests;
    on_host::TakeRuntimeCounts();
    for (size_t i = 0; i < kinds.size(); ++i) {
      RequestSpec spec;
      for (int k = 0; k < 30; ++k)
        spec.prompt.push_back(3 + (k * k * 31 + static_cast<int>(i)) % 250);
      spec.options = kinds[i];
      spec.options.max_tokens = i == 6 ? 60 : 24 - static_cast<int>(i);
      spec.options.speculate = speculate;
      requests.push_back(engine->Submit(std::move(spec)).value());
    }
    for (size_t i = 0; i < requests.size(); ++i) {
      ASSERT_TRUE(requests[i]->WaitFor(absl::Minutes(20)));
      const Generation& result = requests[i]->result();
      ASSERT_TRUE(result.status.ok()) << result.status;
      const std::string shown = absl::StrCat(result.text, "|", FinishReasonName(result.finish));
      if (speculate == Speculate::kAlways) {
        wanted.push_back(shown);
      } else {
        EXPECT_EQ(shown, wanted[i]) << "kind " << i;
      }
    }
    const int64_t row = engine->model().info().vocab_size * int64_t{sizeof(float)};
    EXPECT_GT(on_host::TakeRuntimeCounts().bytes_to_host, 10 * row);  // the host picks
    const int64_t early = engine->Stats().early_steps;
    EXPECT_TRUE(speculate == Speculate::kAlways ? early == 0 : early > 4) << early;
  }
  EXPECT_EQ(on_host::NumFaults(), faults);
}

INSTANTIATE_TEST_SUITE_P(Models, QueuedStepsTest, testing::Values("llama-q8_0", "gpt-oss-mxfp4"),
                         [](const testing::TestParamInfo<std::string>& info) {
                           return ModelAndDevice(info.param, "cuda");
                         });

// What a step that decodes costs the host, once its kernels are known: a graph and a wait, with
// experts as without, whether tokens are drawn or not. Where it begins before the one before has
// been read its head is a graph of its own, which is launched when that has.
class DecodingStepTest : public testing::TestWithParam<std::string> {
 protected:
  void ExpectAGraphAndAWait(Engine* engine, const GenerationOptions& options);
};

void DecodingStepTest::ExpectAGraphAndAWait(Engine* engine, const GenerationOptions& options) {
  const bool queued = engine->model().language_model().queues_steps();
  auto count = [&](int max_tokens) {
    on_host::TakeRuntimeCounts();
    const int64_t before = engine->Stats().steps;
    for (const Generation& answer : AnswersOf(engine, max_tokens, /*prompts=*/1, options)) {
      EXPECT_EQ(answer.tokens_out, max_tokens);
    }
    return std::pair(on_host::TakeRuntimeCounts(), engine->Stats().steps - before);
  };
  for (int i = 0; i < 2; ++i) count(20);  // builds the graphs, and what of the prompt is kept
  const auto [few, few_steps] = count(8);
  const auto [many, many_steps] = count(20);
  ASSERT_EQ(many_steps - few_steps, 12);
  EXPECT_EQ(many.graph_launches - few.graph_launches, queued ? 24 : 12);
  EXPECT_EQ(many.launches, few.launches);  // no kernel by itself
  EXPECT_EQ(many.synchronisations - few.synchronisations, 12);
  EXPECT_EQ(many.bytes_to_host - few.bytes_to_host, 12 * 8);  // a token and its margin, no logits
}

TEST_P(DecodingStepTest, IsAGraphAndAWait) {
  const auto engine = StartOn(GetParam(), "cuda:0");
  ASSERT_NE(engine, nullptr);
  ExpectAGraphAndAWait(engine.get(), {});
  GenerationOptions drawn;
  drawn.temperature = 0.8;
  drawn.top_k = 40;
  drawn.top_p = 0.9;
  drawn.min_p = 0.01;
  drawn.repeat_penalty = 1.1;
  for (int32_t token = 0; token < engine->model().info().vocab_size; ++token) {
    if (engine->model().tokenizer().IsEndOfGeneration(token)) {
      drawn.logit_bias.push_back({token, -100});
    }
  }
  ExpectAGraphAndAWait(engine.get(), drawn);
}

INSTANTIATE_TEST_SUITE_P(Models, DecodingStepTest,
                         testing::Values("llama-q8_0", "gpt-oss-mxfp4", "qwen3next-f32",
                                         "deepseek2-f32"),
                         [](const testing::TestParamInfo<std::string>& info) {
                           return ModelAndDevice(info.param, "cuda");
                         });

// Several devices that compute each layer together: the bits of one, whichever of them is ahead
// where no edge holds it; and a step that decodes has as many graphs, of them all.
class TensorParallelTest : public testing::TestWithParam<std::string> {};

TEST_P(TensorParallelTest, HasTheBitsOfOneDevice) {
  constexpr int32_t kPrompt = 40, kSteps = 6;
  const int64_t faults = on_host::NumFaults();
  std::vector<int64_t> graphs;  // of each step on one device
  auto logits_of = [&](const std::string& device) {
    const auto model =
        Model::Load(ModelPath(GetParam(), ".gguf"),
                    {.device = device, .threads = 1, .kv_bytes = 1 << 24, .least_split_bytes = 0});
    EXPECT_TRUE(model.ok()) << model.status();
    std::vector<float> all;
    if (!model.ok()) return all;
    LanguageModel& language_model = (*model)->language_model();
    std::vector<int32_t> tokens(kPrompt + kSteps);
    for (int32_t k = 0; k < kPrompt + kSteps; ++k) {
      tokens[k] = 3 + (k * k * 31 + 7 * k) % (language_model.vocab_size() - 3);
    }
    TestSequence sequence = MakeSequence(tokens, 0);
    for (int32_t i = 0; i <= kSteps; ++i) {
      on_host::TakeRuntimeCounts();
      const std::vector<float> logits = Feed(language_model, {&sequence}, {i == 0 ? kPrompt : 1});
      all.insert(all.end(), logits.begin(), logits.end());
      const int64_t launches = on_host::TakeRuntimeCounts().graph_launches;
      if (device == "cuda:0") graphs.push_back(launches);
      // What is given to all at a step's end makes the second one's list another than the first's.
      if (i > 3) {
        EXPECT_EQ(launches, graphs[i]) << device;
      }
    }
    return all;
  };
  const std::vector<float> wanted = logits_of("cuda:0");
  for (const char* device : {"cuda:0+cuda:1", "cuda:0+cuda:0"}) {
    const std::vector<float> got = logits_of(device);
    ASSERT_EQ(wanted.size(), got.size());
    EXPECT_EQ(std::memcmp(wanted.data(), got.data(), wanted.size() * sizeof(float)), 0) << device;
  }
  EXPECT_EQ(on_host::NumFaults(), faults);
}

INSTANTIATE_TEST_SUITE_P(
    Models, TensorParallelTest,
    testing::ValuesIn(std::getenv("LM_CUDA_MODELS") != nullptr
                          ? ModelsToRun()
                          : std::vector<std::string>{"llama-q8_0", "gpt-oss-mxfp4", "qwen35-q8_0"}),
    [](const testing::TestParamInfo<std::string>& info) {
      return ModelAndDevice(info.param, "cuda");
    });

}  // namespace
}  // namespace lm
