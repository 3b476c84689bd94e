// Files that are well-formed GGUF but no model: each refusal names the key or tensor and the
// numbers.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <map>

#include "engine/model/model.h"
#include "tests/engine/gguf/gguf_builder.h"

namespace lm {
namespace {

// A llama of one layer whose parts can be changed or left out before it is written.
struct SmallModel {
  using Write = std::function<void(GgufBuilder&, const std::string& key)>;
  struct TensorSpec {
    std::vector<uint64_t> dims;  // contiguous dimension first
    float value = 0.5f;
  };

  template <typename T>
  void Set(const std::string& key, T value) {
    keys[key] = [value](GgufBuilder& builder, const std::string& k) { builder.Add(k, value); };
  }

  SmallModel() {
    Set("general.architecture", std::string("llama"));
    Set("llama.block_count", uint32_t{1});
    Set("llama.embedding_length", uint32_t{32});
    Set("llama.feed_forward_length", uint32_t{48});
    Set("llama.context_length", uint32_t{64});
    Set("llama.attention.head_count", uint32_t{4});
    Set("llama.attention.head_count_kv", uint32_t{2});
    Set("llama.attention.layer_norm_rms_epsilon", 1e-5f);
    Set("tokenizer.ggml.model", std::string("llama"));
    std::vector<std::string> tokens = {"<unk>", "<s>", "</s>"};
    std::vector<int32_t> types = {2, 3, 3};
    for (int byte = 0; byte < 256; ++byte) {
      char name[8];
      std::snprintf(name, sizeof(name), "<0x%02X>", byte);
      tokens.push_back(name);
      types.push_back(6);
    }
    Set("tokenizer.ggml.tokens", tokens);
    Set("tokenizer.ggml.token_type", types);
    Set("tokenizer.ggml.scores", std::vector<float>(tokens.size(), 0.0f));
    tensors["token_embd.weight"] = {{32, 259}};
    tensors["output_norm.weight"] = {{32}};
    tensors["blk.0.attn_norm.weight"] = {{32}};
    tensors["blk.0.ffn_norm.weight"] = {{32}};
    tensors["blk.0.attn_q.weight"] = {{32, 32}};
    tensors["blk.0.attn_k.weight"] = {{32, 16}};
    tensors["blk.0.attn_v.weight"] = {{32, 16}};
    tensors["blk.0.attn_output.weight"] = {{32, 32}};
    tensors["blk.0.ffn_gate.weight"] = {{32, 48}};
    tensors["blk.0.ffn_up.weight"] = {{32, 48}};
    tensors["blk.0.ffn_down.weight"] = {{48, 32}};
  }

  absl::StatusOr<std::unique_ptr<Model>> Load(ModelOptions options = {.kv_bytes = 1 << 20}) const {
    GgufBuilder builder;
    for (const auto& [key, write] : keys) write(builder, key);
    for (const auto& [name, spec] : tensors) {
      uint64_t count = 1;
      for (uint64_t dim : spec.dims) count *= dim;
      std::vector<float> values(count, 0.5f);
      values[count / 2] = spec.value;
      builder.AddTensor(name, kGgmlF32, spec.dims, Bytes(values));
    }
    const std::string path = testing::TempDir() + "/bad_model_test_" +
                             testing::UnitTest::GetInstance()->current_test_info()->name() +
                             ".gguf";
    std::ofstream(path, std::ios::binary) << builder.Build();
    auto model = Model::Load(path, options);
    std::filesystem::remove(path);
    return model;
  }

  std::map<std::string, Write> keys;
  std::map<std::string, TensorSpec> tensors;
};

// The error has every one of these words in it.
void ExpectRefused(const SmallModel& model, std::initializer_list<const char*> words,
                   ModelOptions options = {.kv_bytes = 1 << 20}) {
  auto loaded = model.Load(options);
  ASSERT_FALSE(loaded.ok());
  const std::string message(loaded.status().message());
  for (const char* word : words) {
    EXPECT_NE(message.find(word), std::string::npos) << "'" << word << "' in: " << message;
  }
}

TEST(BadModelTest, TheModelThatTheOthersDifferFromLoads) {
  auto model = SmallModel().Load();
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->info().vocab_size, 259);
}

TEST(BadModelTest, UnknownArchitecture) {
  SmallModel model;
  model.Set("general.architecture", std::string("mamba"));
  ExpectRefused(model, {"'mamba'", "llama", "qwen2"});
}

TEST(BadModelTest, MissingKeysAreNamed) {
  for (const char* key : {"general.architecture", "llama.block_count", "llama.embedding_length",
                          "llama.feed_forward_length", "llama.context_length",
                          "llama.attention.head_count", "llama.attention.layer_norm_rms_epsilon",
                          "tokenizer.ggml.model", "tokenizer.ggml.tokens"}) {
    SmallModel model;
    model.keys.erase(key);
    ExpectRefused(model, {key});
  }
}

TEST(BadModelTest, KeysOfTheWrongTypeAreNamed) {
  SmallModel model;
  model.Set("llama.block_count", std::string("one"));
  ExpectRefused(model, {"llama.block_count"});
}

TEST(BadModelTest, ShapesThatCannotBe) {
  struct Case {
    const char* key;
    uint32_t value;
    std::initializer_list<const char*> words;
  };
  for (const Case& c : std::initializer_list<Case>{
           {"llama.block_count", 0, {"llama.block_count", "got 0"}},
           {"llama.block_count", 1u << 30, {"llama.block_count", "1073741824"}},
           {"llama.embedding_length", 0, {"llama.embedding_length", "got 0"}},
           {"llama.attention.head_count", 0, {"llama.attention.head_count", "got 0"}},
           {"llama.attention.head_count", 6, {"head_count", "6", "32"}},
           {"llama.attention.head_count_kv", 3, {"head_count_kv", "3", "4"}},
           {"llama.attention.head_count_kv", 0, {"head_count_kv", "got 0"}},
           {"llama.attention.key_length", 7, {"7"}},
           {"llama.attention.value_length", 4, {"value_length", "4", "8"}},
           {"llama.rope.dimension_count", 3, {"rope.dimension_count", "3"}},
           {"llama.rope.dimension_count", 64, {"rope.dimension_count", "64"}},
           {"llama.context_length", 0, {"llama.context_length", "got 0"}},
           {"llama.expert_count", 8, {"expert_count", "8"}},
           {"llama.vocab_size", 300, {"vocab_size", "300", "259"}},
           {"tokenizer.ggml.bos_token_id", 259, {"bos_token_id", "259"}},
           {"tokenizer.ggml.eos_token_id", 4000000000u, {"eos_token_id", "4000000000"}},
       }) {
    SmallModel model;
    model.Set(c.key, c.value);
    SCOPED_TRACE(c.key);
    ExpectRefused(model, c.words);
  }
}

TEST(BadModelTest, NumbersThatAreNotNumbers) {
  for (const char* key : {"llama.attention.layer_norm_rms_epsilon", "llama.rope.freq_base"}) {
    for (float value : {std::numeric_limits<float>::quiet_NaN(), 0.0f, -1.0f,
                        std::numeric_limits<float>::infinity()}) {
      SmallModel model;
      model.Set(key, value);
      ExpectRefused(model, {key});
    }
  }
}

TEST(BadModelTest, RopeScalingThatWeDoNotHave) {
  SmallModel model;
  model.Set("llama.rope.scaling.type", std::string("yarn"));
  ExpectRefused(model, {"llama.rope.scaling.type", "yarn"});
}

TEST(BadModelTest, MissingTensorsAreNamed) {
  for (const auto& [name, spec] : SmallModel().tensors) {
    SmallModel model;
    model.tensors.erase(name);
    ExpectRefused(model, {name.c_str(), "missing"});
  }
}

TEST(BadModelTest, WrongShapesNameBoth) {
  SmallModel model;
  model.tensors["blk.0.ffn_down.weight"].dims = {32, 48};
  ExpectRefused(model, {"blk.0.ffn_down.weight", "32 x 48", "48 x 32"});
  SmallModel vocabulary;
  vocabulary.tensors["token_embd.weight"].dims = {32, 258};
  ExpectRefused(vocabulary, {"token_embd.weight", "259 x 32", "258 x 32"});
}

TEST(BadModelTest, ATensorThatNobodyUsesIsNamed) {
  SmallModel model;
  model.tensors["blk.0.attn_q_norm.weight"] = {{8}};
  ExpectRefused(model, {"blk.0.attn_q_norm.weight", "llama"});
}

TEST(BadModelTest, PoisonedWeightsAreNamed) {
  for (const auto& [name, spec] : SmallModel().tensors) {
    SmallModel model;
    model.tensors[name].value = std::numeric_limits<float>::quiet_NaN();
    ExpectRefused(model, {name.c_str()});
  }
}

TEST(BadModelTest, OptionsBeyondTheModel) {
  ExpectRefused(SmallModel(), {"context_length", "64", "65"}, {.context_length = 65});
  ExpectRefused(SmallModel(), {"kv_bytes", "100"}, {.kv_bytes = 100});
  ExpectRefused(SmallModel(), {"tpu"}, {.device = "tpu"});
}

}  // namespace
}  // namespace lm
