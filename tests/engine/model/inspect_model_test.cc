// A file that is inspected tells what one that is loaded turns out to be.
#include "engine/model/inspect_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "engine/gguf/gguf_file.h"
#include "engine/model/model.h"
#include "tests/engine/gguf/gguf_builder.h"
#include "tests/engine/model/small_model.h"
#include "tests/testdata.h"

namespace lm {
namespace {

using testing::HasSubstr;

absl::StatusOr<ModelReport> Inspect(const std::string& path) {
  const std::atomic<bool> never{false};
  return InspectModel(path, std::nullopt, "cpu", never);
}

TEST(InspectModelTest, SaysWhatLoadingFinds) {
  for (const char* name : {"llama-q4_k_m", "qwen2-bf16", "gemma3-q8_0", "qwen35-f32"}) {
    SCOPED_TRACE(name);
    const std::string path = absl::StrCat(LM_TESTDATA, "/models/", name, ".gguf");
    const auto report = Inspect(path);
    ASSERT_TRUE(report.ok()) << report.status();
    const auto model = Model::Load(path, {.device = "cpu", .kv_bytes = 1 << 22});
    ASSERT_TRUE(model.ok()) << model.status();
    const ModelInfo& info = (*model)->info();
    EXPECT_EQ(report->problem, "");
    EXPECT_EQ(report->name, info.name);
    EXPECT_EQ(report->architecture, info.architecture);
    EXPECT_EQ(report->parameters, info.parameters);
    EXPECT_EQ(report->weight_bytes, info.weight_bytes);
    EXPECT_EQ(report->types.front().first, info.quantisation);
    EXPECT_EQ(report->context_length, info.context_length);
    EXPECT_EQ(report->vocabulary, info.vocab_size);
    EXPECT_EQ(report->hidden, info.hidden_size);
    const CacheShape& cache = (*model)->language_model().cache();
    EXPECT_EQ(report->state_bytes, cache.state_bytes);
    ASSERT_EQ(report->classes.size(), cache.classes.size());
    int64_t row = cache.state_bytes;  // of 100 tokens
    for (size_t i = 0; i < cache.classes.size(); ++i) {
      const CacheClass& c = cache.classes[i];
      EXPECT_EQ(report->classes[i].block_bytes, c.block_bytes);
      EXPECT_EQ(report->classes[i].window, c.window);
      const int64_t seen = c.window == 0 ? 100 : std::min<int64_t>(100, c.window + kKvBlockTokens);
      row += (seen + kKvBlockTokens - 1) / kKvBlockTokens * c.block_bytes;
    }
    EXPECT_EQ(report->MemoryFor(1, 100), report->memory_bytes + row);
    EXPECT_EQ(report->MemoryFor(64, 100), report->memory_bytes + 64 * row);
  }
}

// A llama with other types for its matrices, of zeros.
void WriteWithType(const GgufFile& gguf, DType dtype, const std::string& path) {
  GgufBuilder builder;
  for (const auto& [key, value] : gguf.metadata().values()) {
    std::visit([&builder, &name = key](const auto& v) { builder.Add(name, v); }, value);
  }
  for (const TensorInfo& tensor : gguf.tensors()) {
    const bool changed = Traits(tensor.dtype).quantised;
    const DType type = changed ? dtype : tensor.dtype;
    std::string bytes(tensor.rows * RowBytes(type, tensor.cols), '\0');
    if (!changed) {
      ASSERT_TRUE(gguf.ReadTensor(tensor, absl::MakeSpan(bytes.data(), bytes.size())).ok());
    }
    builder.AddTensor(tensor.name, type, tensor.dims, bytes);
  }
  std::ofstream(path, std::ios::binary) << builder.Build();
}

TEST(InspectModelTest, MemoryIsWhatBlocksTakeThere) {
  const auto gguf = GgufFile::Open(LM_TESTDATA "/models/llama-q4_k_m.gguf");
  ASSERT_TRUE(gguf.ok()) << gguf.status();
  const std::string path = testing::TempDir() + "/inspect_memory.gguf";
  for (const DType dtype :
       {DType::kQ4_0, DType::kQ8_0, DType::kQ3_K, DType::kQ4_K, DType::kQ6_K, DType::kIQ4_XS,
        DType::kIQ3_S, DType::kIQ3_XXS, DType::kIQ2_S, DType::kIQ2_XXS, DType::kIQ1_S,
        DType::kIQ1_M, DType::kTQ1_0, DType::kMXFP4, DType::kNVFP4, DType::kQ2_0}) {
    SCOPED_TRACE(Traits(dtype).name);
    WriteWithType(**gguf, dtype, path);
    const auto report = Inspect(path);
    ASSERT_TRUE(report.ok()) << report.status();
    const auto model = Model::Load(path, {.device = "cpu", .kv_bytes = 1 << 22});
    ASSERT_TRUE(model.ok()) << model.status();
    const ModelCost& cost = (*model)->info().cost;
    const int64_t products = cost.head_bytes + cost.body_bytes;  // the embedding is the head
    int64_t norms = 0;
    for (const TensorInfo& tensor : (*gguf)->tensors()) {
      if (tensor.rows == 1) norms += tensor.cols * static_cast<int64_t>(sizeof(float));
    }
    // W_q, W_k and W_v are one matrix there, whose rows are filled up once.
    EXPECT_GE(report->memory_bytes, products + norms);
    EXPECT_LE(report->memory_bytes, products + norms + products / 50);
  }
  std::filesystem::remove(path);
}

// Of each head and position a multiply and an add for each value of the key, and of the value.
TEST(ModelCostTest, AttentionIsThatOfAllLayersWithAWindow) {
  using Attention = ModelCost::Attention;
  const auto cost_of = [](const char* name) {
    const std::string path = absl::StrCat(LM_TESTDATA "/models/", name);
    return Model::Load(path, {.device = "cpu", .kv_bytes = 1 << 22}).value()->info().cost.attention;
  };
  const auto speed_with = [](DType kv_type) {
    const ModelOptions options = {.device = "cpu", .kv_bytes = 1 << 22, .kv_type = kv_type};
    const auto model = Model::Load(LM_TESTDATA "/models/llama-q8_0.gguf", options);
    return model.value()->info().cost.attention_speed;
  };
  EXPECT_EQ(speed_with(DType::kF16), 1);
  EXPECT_GT(speed_with(DType::kI16), 1);  // of integers
  const auto is = [](int64_t window, int64_t operations) {
    return testing::AllOf(testing::Field(&Attention::window, window),
                          testing::Field(&Attention::operations, operations));
  };
  EXPECT_THAT(cost_of("llama-q8_0.gguf"), testing::ElementsAre(is(0, 2 * 4 * (2 * 16 + 2 * 16))));
  // One layer in six sees all.
  EXPECT_THAT(cost_of("gemma3-f32.gguf"),
              testing::UnorderedElementsAre(is(8, 5 * 6 * (2 * 16 + 2 * 16)),
                                            is(0, 6 * (2 * 16 + 2 * 16))));
}

TEST(InspectModelTest, AVocabularyAloneIsNoModel) {
  const auto gguf = GgufFile::Open(LM_TESTDATA "/models/llama-q8_0.gguf");
  ASSERT_TRUE(gguf.ok()) << gguf.status();
  GgufBuilder builder;
  for (const auto& [key, value] : (*gguf)->metadata().values()) {
    std::visit([&builder, &name = key](const auto& v) { builder.Add(name, v); }, value);
  }
  const std::string path = absl::StrCat(testing::TempDir(), "/inspect_vocabulary.", getpid());
  std::ofstream(path, std::ios::binary) << builder.Build();
  EXPECT_THAT(
      Inspect(path).value().problem,
      HasSubstr("'token_embd.weight' is missing: the file has a vocabulary and no weights"));
  std::filesystem::remove(path);
}

TEST(InspectModelTest, NamesATemplateThatLosesThePrompt) {
  const std::string path = absl::StrCat(testing::TempDir(), "/inspect_model_test.", getpid());
  SmallModel small;
  small.Set("tokenizer.chat_template", std::string("{{ 'Hello.' }}"));
  small.Write(path);
  EXPECT_THAT(Inspect(path).value().problem, HasSubstr("leaves out what message 1 of 2 says"));
  small.Set("tokenizer.chat_template", std::string("{{ messages[0].content }}"));
  small.Write(path);
  EXPECT_EQ(Inspect(path).value().problem, "");
  unlink(path.c_str());
}

TEST(InspectModelTest, NamesWhatKeepsAModelFromRunning) {
  std::ifstream in(LM_TESTDATA "/models/llama-q8_0.gguf", std::ios::binary);
  const std::string bytes = (std::stringstream() << in.rdbuf()).str();
  const std::string path = absl::StrCat(testing::TempDir(), "/inspect_model_test.", getpid());
  auto inspect = [&](const std::string& from, const std::string& to) {
    std::ofstream(path, std::ios::binary) << absl::StrReplaceAll(bytes, {{from, to}});
    return Inspect(path);
  };
  const ModelReport other = inspect("llama", "lhama").value();
  EXPECT_EQ(other.architecture, "lhama");
  EXPECT_THAT(other.problem, HasSubstr("lhama"));
  EXPECT_GT(other.parameters, 0);
  EXPECT_EQ(other.layers, 0);
  EXPECT_NE(other.tokenizer, "");
  const ModelReport voiceless = inspect("smollm", "smelly").value();
  EXPECT_THAT(voiceless.problem, HasSubstr("smelly"));
  EXPECT_GT(voiceless.layers, 0);
  // A type that ggml has and we have not: 9 is Q8_1.
  const std::string type8("\x08\0\0\0", 4), type9("\x09\0\0\0", 4);
  const std::string name = "blk.0.attn_q.weight";
  std::string odd = bytes;
  const size_t at = odd.find(name) + name.size() + 4 + 2 * 8;
  ASSERT_EQ(odd.substr(at, 4), type8);
  odd.replace(at, 4, type9);
  std::ofstream(path, std::ios::binary) << odd;
  const ModelReport typed = Inspect(path).value();
  EXPECT_THAT(typed.problem, HasSubstr("Q8_1"));
  EXPECT_EQ(typed.file_bytes, 0);
  unlink(path.c_str());
  EXPECT_FALSE(Inspect(path).ok());
}

TEST(InspectModelTest, KnowsTemplatesByTheirMarks) {
  EXPECT_EQ(TemplateKind(""), "");
  EXPECT_EQ(TemplateKind("{{ '<|im_start|>' + message.role }}"), "chatml");
  EXPECT_EQ(TemplateKind("{{ bos_token }}<start_of_turn>"), "gemma");
  EXPECT_EQ(TemplateKind("{{ message.content }}"), "jinja");
  EXPECT_EQ(TemplateKind("rwkv-world"), "rwkv-world");
  EXPECT_EQ(TemplateKind("{# not chatml #}{{ message.content }}"), "jinja");
}

TEST(InspectModelTest, WhatStaysInTheFileIsNoMemory) {
  const std::string path = std::string(LM_TESTDATA) + "/models/gemma4-e-f32.gguf";
  const std::atomic<bool> cancel{false};
  const auto report = InspectModel(path, DType::kF16, "cpu", cancel);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->problem, "");
  const auto model = Model::Load(path, {.kv_bytes = 1 << 24});
  ASSERT_TRUE(model.ok()) << model.status();
  // 6 embeddings of 16 values for each of 400 tokens.
  constexpr int64_t kSize = sizeof(float), kInFile = 400 * 6 * 16 * kSize;
  EXPECT_EQ(report->parameters * kSize - report->weight_bytes, kInFile);
  const ModelInfo& info = (*model)->info();
  EXPECT_EQ(info.parameters * kSize - info.weight_bytes, kInFile);
}

TEST(InspectModelTest, ASplitThatTheFileDoesNotNameIsNoted) {
  const std::string path = testing::TempDir() + "/without_pre.gguf";
  const std::atomic<bool> cancel{false};
  for (const char* pre : {"", "gpt-2"}) {
    SmallModel model;
    model.Set("tokenizer.ggml.model", std::string("gpt2"));
    model.Set("tokenizer.ggml.merges", std::vector<std::string>{});
    if (*pre != '\0') model.Set("tokenizer.ggml.pre", std::string(pre));
    model.Write(path);
    const auto report = InspectModel(path, DType::kF16, "cpu", cancel);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(absl::StrContains(report->note, "tokenizer.ggml.pre"), *pre == '\0') << report->note;
  }
  std::filesystem::remove(path);
}

TEST(InspectModelTest, PartsForImagesAreNoted) {
  SmallModel model;
  model.tensors["v.blk.0.attn_q.weight"] = {{32, 32}};
  model.tensors["mm.input_projection.weight"] = {{32, 32}};
  const std::string path = testing::TempDir() + "/with_tower.gguf";
  model.Write(path);
  const std::atomic<bool> cancel{false};
  const auto report = InspectModel(path, DType::kF16, "cpu", cancel);
  SmallModel().Write(path);
  const auto without = InspectModel(path, DType::kF16, "cpu", cancel);
  std::filesystem::remove(path);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->note, "its parts for images and sound are not read: 2 tensors, 8192 bytes");
  EXPECT_EQ(report->weight_bytes, without->weight_bytes);
  EXPECT_EQ(without->note, "");
}

}  // namespace
}  // namespace lm
