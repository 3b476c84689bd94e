// Files as Ollama's converters write them, made of llama.cpp's by giving their keys and tensors
// other names: they are the same files once they are open.
#include "engine/gguf/ollama_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "engine/gguf/gguf_file.h"
#include "engine/model/model.h"
#include "tests/engine/gguf/gguf_builder.h"
#include "tests/engine/gguf/memory_file.h"
#include "tests/engine/model/golden_file.h"
#include "tests/engine/model/run_model.h"

namespace lm {
namespace {

using Names = std::vector<std::pair<std::string, std::string>>;  // llama.cpp's, Ollama's

struct Case {
  const char* model;
  std::string architecture;  // that Ollama says
  Names keys, tensors;
  std::set<std::string> without;  // keys that it does not write
  std::set<std::string> more;     // that are there once it is open
};

std::string Contents(const GgufFile& gguf, const TensorInfo& tensor) {
  std::string bytes(tensor.bytes, '\0');
  const absl::Status read = gguf.ReadTensor(tensor, absl::MakeSpan(bytes.data(), bytes.size()));
  EXPECT_TRUE(read.ok()) << read;
  return bytes;
}

// A tensor's name, of which a whole component or more is another.
std::string Renamed(std::string name, const Names& names) {
  for (const auto& [ours, theirs] : names) {
    const size_t at = name.find(ours);
    if (at == std::string::npos || (at > 0 && name[at - 1] != '.')) continue;
    return name.replace(at, ours.size(), theirs);
  }
  return name;
}

void Write(const MetadataValue& value, const std::string& key, GgufBuilder* builder) {
  std::visit([&](const auto& v) { builder->Add(key, v); }, value);
}

// `gguf`'s keys in the words of a case.
void WriteKeys(const GgufFile& gguf, const Case& c, GgufBuilder* builder) {
  const std::string prefix = gguf.metadata().GetString("general.architecture").value() + ".";
  std::map<std::string, MetadataValue> keys;
  for (const auto& [key, value] : gguf.metadata().values()) {
    absl::string_view name = key;
    if (!absl::ConsumePrefix(&name, prefix)) {
      if (c.without.count(key) == 0) keys[key] = value;
      continue;
    }
    if (c.without.count(std::string(name)) > 0) continue;
    const auto renamed = std::find_if(c.keys.begin(), c.keys.end(),
                                      [name](const auto& names) { return names.first == name; });
    keys[absl::StrCat(c.architecture, ".",
                      renamed == c.keys.end() ? name : absl::string_view(renamed->second))] = value;
  }
  keys["general.architecture"] = c.architecture;
  for (const auto& [key, value] : keys) Write(value, key, builder);
}

std::string InOllamasWords(const GgufFile& gguf, const Case& c) {
  GgufBuilder builder;
  WriteKeys(gguf, c, &builder);
  for (const TensorInfo& tensor : gguf.tensors()) {
    builder.AddTensor(Renamed(tensor.name, c.tensors), tensor.dtype, tensor.dims,
                      Contents(gguf, tensor));
  }
  return builder.Build();
}

class OllamaFilesTest : public testing::TestWithParam<Case> {};

TEST_P(OllamaFilesTest, AreLlamaCppsOnceTheyAreOpen) {
  const Case& c = GetParam();
  const auto gguf = GgufFile::Open(ModelPath(c.model, ".gguf"));
  ASSERT_TRUE(gguf.ok()) << gguf.status();
  const auto theirs = OpenGguf(InOllamasWords(**gguf, c));
  ASSERT_TRUE(theirs.ok()) << theirs.status();
  const auto& keys = (*gguf)->metadata().values();
  const std::string prefix = (*gguf)->metadata().GetString("general.architecture").value() + ".";
  for (const auto& [key, value] : keys) {
    if (key == "tokenizer.ggml.pre") continue;
    ASSERT_TRUE((*theirs)->metadata().Has(key)) << key;
    const MetadataValue& read = (*theirs)->metadata().values().find(key)->second;
    const auto* count = std::get_if<int64_t>(&read);
    if (count != nullptr) {
      EXPECT_EQ((*gguf)->metadata().GetInt(key).value(), *count) << key;
    } else {
      EXPECT_TRUE(read == value) << key;
    }
  }
  for (const auto& [key, value] : (*theirs)->metadata().values()) {
    absl::string_view name = key;
    absl::ConsumePrefix(&name, prefix);
    EXPECT_TRUE(keys.count(key) > 0 || c.more.count(std::string(name)) > 0) << key;
  }
  ASSERT_EQ((*theirs)->tensors().size(), (*gguf)->tensors().size());
  for (const TensorInfo& tensor : (*gguf)->tensors()) {
    const TensorInfo* found = (*theirs)->FindTensor(tensor.name);
    ASSERT_NE(found, nullptr) << tensor.name;
    EXPECT_EQ(found->dims, tensor.dims);
    EXPECT_EQ(found->dtype, tensor.dtype);
  }
}

const Names kGptOssTensors = {{"attn_output.", "attn_out."},
                              {"attn_sinks.weight", "attn_sinks"},
                              {"post_attention_norm.", "ffn_norm."}};

INSTANTIATE_TEST_SUITE_P(
    All, OllamaFilesTest,
    testing::Values(
        Case{"gpt-oss-f32",
             "gptoss",
             {},
             kGptOssTensors,
             {"rope.scaling.type"},
             {"ffn_gate_up_exps.alternate", "tokenizer.ggml.pre"}},
        Case{"olmo3-f32", "olmo3", {}, {}, {}, {}},
        Case{"gemma3-f32",
             "gemma3",
             {{"rope.freq_base", "rope.global.freq_base"}},
             {},
             {},
             {"rope.freq_base_swa"}},
        Case{"gemma-embedding-f32",
             "gemma3",
             {},
             {{"dense_2.", "dense.0."}, {"dense_3.", "dense.1."}, {"output_norm.", "norm."}},
             {"dense_2_feat_in", "dense_2_feat_out", "dense_3_feat_in", "dense_3_feat_out"},
             {"rope.freq_base_swa"}},
        Case{"gemma4-moe-f32",
             "gemma4",
             {},
             {{"ffn_down_exps.scale", "ffn_gate_inp.per_expert_scale"}},
             {},
             {}},
        Case{"mistral3-f32",
             "mistral3",
             {{"rope.scaling.yarn_beta_fast", "rope.scaling.beta_fast"},
              {"rope.scaling.yarn_beta_slow", "rope.scaling.beta_slow"},
              {"rope.scaling.yarn_log_multiplier", "rope.scaling.mscale_all_dim"},
              {"attention.temperature_scale", "rope.scaling_beta"}},
             {},
             {},
             {"tokenizer.ggml.pre"}},
        Case{"qwen35-f32", "qwen35", {}, {{"ssm_dt.bias", "ssm_dt"}}, {}, {}},
        Case{"qwen3next-f32", "qwen3next", {}, {{"ssm_dt.bias", "ssm_dt"}}, {}, {}},
        Case{"laguna-f32",
             "laguna",
             {{"rope.dimension_count_swa", "rope.swa.dimension_count"},
              {"rope.freq_base_swa", "rope.swa.freq_base"}},
             {{"attn_gate.", "attn_g."}},
             {},
             {}},
        Case{"nemotron_h_moe-f32",
             "nemotron_h_moe",
             {},
             {{"ffn_latent_down.", "ffn_latent_in."}, {"ffn_latent_up.", "ffn_latent_out."}},
             {"moe_latent_size"},
             {}}),
    [](const auto& info) {
      std::string name = info.param.model;
      std::replace_if(
          name.begin(), name.end(), [](char c) { return !std::isalnum(c); }, '_');
      return name;
    });

// gpt-oss with gate and up in one tensor, whose rows take turns, and `type` 39, or 4 with bytes of
// two neighbours.
std::string OneTensorForBoth(const GgufFile& gguf, uint32_t type) {
  GgufBuilder builder;
  Case c = {"", "gptoss", {}, kGptOssTensors, {"rope.scaling.type"}, {}};
  WriteKeys(gguf, c, &builder);
  const auto neighbours = [type](std::string blocks) {
    for (size_t b = 0; type == 4 && b < blocks.size(); b += 17) {
      const std::string halves = blocks.substr(b + 1, 16);
      for (int v = 0; v < 32; v += 2) {
        auto value = [&](int i) { return static_cast<uint8_t>(halves[i % 16]) >> i / 16 * 4 & 15; };
        blocks[b + 1 + v / 2] = static_cast<char>(value(v) | value(v + 1) << 4);
      }
    }
    return blocks;
  };
  for (const TensorInfo& tensor : gguf.tensors()) {
    const std::string contents = Contents(gguf, tensor);
    const bool packed = tensor.dtype == DType::kMXFP4;
    const std::string name = Renamed(tensor.name, c.tensors);
    if (absl::StrContains(name, "ffn_up_exps")) continue;
    if (!absl::StrContains(name, "ffn_gate_exps")) {
      builder.AddTensor(name, packed ? type : GgmlNumber(tensor.dtype), tensor.dims,
                        packed ? neighbours(contents) : contents);
      continue;
    }
    std::string up_name = tensor.name, both_name = tensor.name;
    up_name.replace(up_name.find("gate"), 4, "up");
    both_name.replace(both_name.find("gate"), 4, "gate_up");
    const std::string up = Contents(gguf, *gguf.FindTensor(up_name));
    // A bias has a number for each row.
    const bool bias = absl::EndsWith(name, ".bias");
    const size_t row_bytes = bias ? sizeof(float) : contents.size() / tensor.rows;
    std::string both;
    for (size_t row = 0; row < contents.size(); row += row_bytes) {
      both += contents.substr(row, row_bytes) + up.substr(row, row_bytes);
    }
    std::vector<uint64_t> dims = tensor.dims;
    dims[bias ? 0 : 1] *= 2;
    builder.AddTensor(both_name, packed ? type : GgmlNumber(tensor.dtype), dims,
                      packed ? neighbours(both) : both);
  }
  return builder.Build();
}

std::vector<float> LogitsOf(const std::string& path) {
  auto model = Model::Load(path, {.kv_bytes = 1 << 22});
  EXPECT_TRUE(model.ok()) << model.status();
  if (!model.ok()) return {};
  TestSequence sequence =
      MakeSequence({5, 250, 17, 90, 3, 3, 201, 44, 8, 19, 150, 33, 99, 77, 12, 6}, 0);
  return Feed((*model)->language_model(), {&sequence}, {16});
}

TEST(GptOssOfOllamaTest, HasTheSameLogits) {
  for (const char* name : {"gpt-oss-f32", "gpt-oss-mxfp4"}) {
    const std::string path = ModelPath(name, ".gguf");
    const auto gguf = GgufFile::Open(path);
    ASSERT_TRUE(gguf.ok()) << gguf.status();
    const std::vector<float> expected = LogitsOf(path);
    ASSERT_FALSE(expected.empty());
    for (const uint32_t type : {4u, 39u}) {
      SCOPED_TRACE(absl::StrCat(name, " ", type));
      const std::string renamed = testing::TempDir() + "/gpt_oss_of_ollama.gguf";
      std::ofstream(renamed, std::ios::binary) << OneTensorForBoth(**gguf, type);
      EXPECT_EQ(LogitsOf(renamed), expected);
      std::filesystem::remove(renamed);
    }
  }
}

Metadata Of(std::map<std::string, MetadataValue> values) {
  Metadata metadata;
  for (auto& [key, value] : values) metadata.Insert(key, std::move(value));
  return metadata;
}

TEST(OllamaNamesTest, Glm4MoeLitesHeadsAreLatent) {
  Metadata metadata = Of({{"general.architecture", std::string("glm4moelite")},
                          {"glm4moelite.attention.head_count_kv", uint64_t{20}},
                          {"glm4moelite.attention.key_length", uint64_t{256}},
                          {"glm4moelite.attention.value_length", uint64_t{256}},
                          {"glm4moelite.attention.key_length_mla", uint64_t{576}},
                          {"glm4moelite.attention.kv_lora_rank", uint64_t{512}},
                          {"glm4moelite.rope.dimension_count", uint64_t{64}}});
  std::vector<TensorInfo> tensors;
  UseLlamaCppNames(&metadata, &tensors);
  auto of = [&](const char* name) {
    return metadata.GetInt(absl::StrCat("deepseek2.attention.", name)).value();
  };
  EXPECT_EQ(of("head_count_kv"), 1);
  EXPECT_EQ(of("key_length"), 576);
  EXPECT_EQ(of("value_length"), 512);
  EXPECT_EQ(of("key_length_mla"), 256);
  EXPECT_EQ(of("value_length_mla"), 256);
  for (const auto& [key, value] : metadata.values()) {
    EXPECT_FALSE(absl::StartsWith(key, "glm4moelite")) << key;
  }
  // A sum that is none is for the reader to refuse.
  metadata = Of({{"general.architecture", std::string("glm4moelite")},
                 {"glm4moelite.attention.key_length", uint64_t{256}},
                 {"glm4moelite.attention.kv_lora_rank", uint64_t{INT64_MAX}},
                 {"glm4moelite.rope.dimension_count", uint64_t{64}}});
  UseLlamaCppNames(&metadata, &tensors);
  EXPECT_FALSE(metadata.GetInt("deepseek2.attention.key_length").ok());
}

TEST(OllamaNamesTest, Qwen3VlHasItsSections) {
  std::vector<TensorInfo> tensors;
  Metadata metadata = Of({{"general.architecture", std::string("qwen3vl")}});
  UseLlamaCppNames(&metadata, &tensors);
  EXPECT_THAT(metadata.GetInts("qwen3vl.rope.dimension_sections").value(),
              testing::ElementsAre(24, 20, 20, 0));
  metadata = Of({{"general.architecture", std::string("qwen3vlmoe")},
                 {"qwen3vlmoe.rope.dimension_sections", std::vector<int64_t>{6, 5, 5, 0}}});
  UseLlamaCppNames(&metadata, &tensors);
  EXPECT_THAT(metadata.GetInts("qwen3vlmoe.rope.dimension_sections").value(),
              testing::ElementsAre(6, 5, 5, 0));
}

TEST(OllamaNamesTest, NemotronOmniIsItsTextModel) {
  std::vector<TensorInfo> tensors;
  for (const uint64_t experts : {uint64_t{0}, uint64_t{8}}) {
    const std::string means = experts > 0 ? "nemotron_h_moe" : "nemotron_h";
    Metadata metadata = Of({{"general.architecture", std::string("nemotron_h_omni")},
                            {"nemotron_h_omni.expert_count", experts},
                            {"nemotron_h_omni.block_count", uint64_t{3}}});
    UseLlamaCppNames(&metadata, &tensors);
    EXPECT_EQ(metadata.GetString("general.architecture").value(), means);
    EXPECT_EQ(metadata.GetInt(means + ".block_count").value(), 3);
  }
}

// What is said twice, or is as it is here, is left out; what differs is left for a refusal.
TEST(OllamaNamesTest, WhatIsSaidTwiceIsSaidOnce) {
  std::vector<TensorInfo> tensors;
  Metadata metadata =
      Of({{"general.architecture", std::string("laguna")},
          {"laguna.attention.head_dim", uint64_t{16}},
          {"laguna.attention.key_length", uint64_t{16}},
          {"laguna.attention.qk_norm", true},
          {"laguna.attention.sink_enabled", true},
          {"laguna.attention.layer_types", std::vector<uint64_t>{0, 1}},
          {"laguna.attention.sliding_window_pattern", std::vector<bool>{false, true}},
          {"laguna.dense_layers", std::vector<int64_t>{1}}});
  UseLlamaCppNames(&metadata, &tensors);
  EXPECT_FALSE(metadata.Has("laguna.attention.head_dim"));
  EXPECT_FALSE(metadata.Has("laguna.attention.qk_norm"));
  EXPECT_FALSE(metadata.Has("laguna.attention.layer_types"));
  EXPECT_TRUE(metadata.Has("laguna.attention.sink_enabled"));
  EXPECT_TRUE(metadata.Has("laguna.dense_layers"));
}

// gemma3n with tokens of images that have no embeddings for the layers, which llama.cpp's files
// leave out: the same logits.
TEST(Gemma3nOfOllamaTest, HasTheSameLogits) {
  const std::string path = ModelPath("gemma3n-f32", ".gguf");
  const auto gguf = GgufFile::Open(path);
  ASSERT_TRUE(gguf.ok()) << gguf.status();
  constexpr int kImages = 3;
  GgufBuilder builder;
  for (const auto& [key, value] : (*gguf)->metadata().values()) {
    MetadataValue more = value;
    if (auto* tokens = std::get_if<std::vector<std::string>>(&more);
        tokens != nullptr && key == "tokenizer.ggml.tokens") {
      for (int i = 0; i < kImages; ++i) tokens->push_back(absl::StrCat("<image ", i, ">"));
    } else if (key == "tokenizer.ggml.token_type") {
      if (auto* types = std::get_if<std::vector<int64_t>>(&more))
        types->resize(types->size() + kImages, 3);
    } else if (key == "tokenizer.ggml.scores") {
      if (auto* scores = std::get_if<std::vector<double>>(&more))
        scores->resize(scores->size() + kImages);
    }
    const bool renamed = key == "gemma3n.attention.key_length";
    if (key == "gemma3n.vocab_size" || key == "gemma3n.attention.value_length") continue;
    Write(more, renamed ? "gemma3n.head_dim" : key, &builder);
  }
  builder.Add("gemma3n.altup.correct_scale", true).Add("gemma3n.altup.lr_multiplier", 1.0f);
  for (const TensorInfo& tensor : (*gguf)->tensors()) {
    std::vector<uint64_t> dims = tensor.dims;
    std::string contents = Contents(**gguf, tensor);
    if (tensor.name == "token_embd.weight") {
      dims[1] += kImages;
      contents.append(contents.substr(0, kImages * dims[0] * sizeof(float)));
    }
    builder.AddTensor(tensor.name, tensor.dtype, dims, contents);
  }
  const std::string of_ollama = testing::TempDir() + "/gemma3n_of_ollama.gguf";
  std::ofstream(of_ollama, std::ios::binary) << builder.Build();
  EXPECT_EQ(LogitsOf(of_ollama), LogitsOf(path));
  std::filesystem::remove(of_ollama);
}

// RWKV-6 as llama.cpp's converter wrote it in 2024.
TEST(OlderFilesTest, Rwkv6MayHaveAVectorForEachMixture) {
  const std::string path = ModelPath("rwkv6-f32", ".gguf");
  const auto gguf = GgufFile::Open(path);
  ASSERT_TRUE(gguf.ok()) << gguf.status();
  GgufBuilder builder;
  for (const auto& [key, value] : (*gguf)->metadata().values()) Write(value, key, &builder);
  for (const TensorInfo& tensor : (*gguf)->tensors()) {
    const std::string contents = Contents(**gguf, tensor);
    const size_t at = tensor.name.find("lerp_fused");
    if (at == std::string::npos) {
      builder.AddTensor(tensor.name, tensor.dtype, tensor.dims, contents);
      continue;
    }
    const size_t bytes = contents.size() / 5;
    for (int i = 0; i < 5; ++i) {
      std::string name = tensor.name;
      name.replace(at, std::strlen("lerp_fused"),
                   absl::StrCat("lerp_", std::string(1, "wkvrg"[i])));
      builder.AddTensor(name, tensor.dtype, {tensor.dims[0], 1, 1},
                        contents.substr(i * bytes, bytes));
    }
  }
  const std::string older = testing::TempDir() + "/older_rwkv6.gguf";
  std::ofstream(older, std::ios::binary) << builder.Build();
  EXPECT_EQ(LogitsOf(older), LogitsOf(path));
  std::filesystem::remove(older);
}

TEST(OllamaNamesTest, VocabulariesAndMapsAreMended) {
  std::vector<TensorInfo> tensors(1);
  tensors[0].name = "token_embd.weight";
  tensors[0].rows = 2;
  Metadata metadata = Of({{"general.architecture", std::string("gemma3")},
                          {"gemma3.mm.tokens_per_image", uint64_t{256}},
                          {"gemma3.context_length", uint64_t{131072}},
                          {"tokenizer.ggml.tokens", std::vector<std::string>{"a", "b", "image"}},
                          {"tokenizer.ggml.token_type", std::vector<int64_t>{1, 1, 3}},
                          {"tokenizer.ggml.scores", std::vector<double>{0, 1, 2}}});
  UseLlamaCppNames(&metadata, &tensors);
  EXPECT_THAT(metadata.GetStrings("tokenizer.ggml.tokens").value(), testing::ElementsAre("a", "b"));
  EXPECT_EQ(metadata.GetInts("tokenizer.ggml.token_type")->size(), 2u);
  EXPECT_EQ(metadata.GetFloats("tokenizer.ggml.scores")->size(), 2u);
  EXPECT_EQ(metadata.GetFloat("gemma3.rope.scaling.factor").value(), 8);
  EXPECT_EQ(metadata.GetFloat("gemma3.rope.freq_base").value(), 1e6);
  EXPECT_EQ(metadata.GetFloat("gemma3.attention.layer_norm_rms_epsilon").value(), double{1e-6f});

  metadata = Of({{"general.architecture", std::string("bert")},
                 {"tokenizer.ggml.precompiled_charsmap",
                  std::vector<std::string>{"A", "P", "8", "B", "A", "g", "=", "="}}});
  UseLlamaCppNames(&metadata, &tensors);
  EXPECT_THAT(metadata.GetInts("tokenizer.ggml.precompiled_charsmap").value(),
              testing::ElementsAre(0, 255, 1, 2));

  metadata = Of({{"general.architecture", std::string("qwen25vl")},
                 {"qwen25vl.rope.mrope_section", std::vector<int64_t>{16, 24, 24}}});
  UseLlamaCppNames(&metadata, &tensors);
  EXPECT_THAT(metadata.GetInts("qwen2vl.rope.dimension_sections").value(),
              testing::ElementsAre(16, 24, 24, 0));
}

// What a file calls by both names is as it was: its readers refuse what is too much.
TEST(OllamaNamesTest, NothingIsLost) {
  Metadata metadata = Of({{"general.architecture", std::string("mistral3")},
                          {"mistral3.rope.scaling.beta_fast", 7.0},
                          {"mistral3.rope.scaling.yarn_beta_fast", 32.0}});
  std::vector<TensorInfo> tensors;
  UseLlamaCppNames(&metadata, &tensors);
  EXPECT_EQ(metadata.GetFloat("mistral3.rope.scaling.yarn_beta_fast").value(), 32);
  EXPECT_EQ(metadata.GetFloat("mistral3.rope.scaling.beta_fast").value(), 7);
  metadata = Of({{"general.architecture", uint64_t{7}}});
  UseLlamaCppNames(&metadata, &tensors);
  EXPECT_EQ(metadata.GetInt("general.architecture").value(), 7);
}

}  // namespace
}  // namespace lm
