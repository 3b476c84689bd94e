// Files that are well-formed GGUF but no model: each refusal names the key or tensor and the
// numbers.
#include <gtest/gtest.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <filesystem>
#include <initializer_list>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "engine/model/device_plan.h"
#include "engine/model/weight_loader.h"
#include "tests/engine/model/small_model.h"
#include "tests/testdata.h"

namespace lm {
namespace {

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

// What a smaller device would not help is not tried again.
TEST(BadModelTest, AutoIsTriedOnceWhereItIsTheCpu) {
  if (HasGpu(PlanDevices("auto", 1).value())) GTEST_SKIP() << "there is a GPU";
  const std::string path = testing::TempDir() + "/auto_is_tried_once.gguf";
  SmallModel().Write(path);
  const int watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
  ASSERT_GE(watch, 0);
  const absl::Cleanup gone = [&] {
    close(watch);
    std::filesystem::remove(path);
  };
  ASSERT_GE(inotify_add_watch(watch, path.c_str(), IN_OPEN | IN_CLOSE_NOWRITE), 0);
  auto times_opened = [&](const char* device) {
    // A folder is no adapter: FailedPrecondition.
    const absl::Status status =
        Model::Load(path, {.device = device, .lora = {{.path = testing::TempDir()}}}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    int opened = 0;
    inotify_event event;  // without a name, for the watch is a file's
    while (read(watch, &event, sizeof(event)) == sizeof(event)) opened += event.mask == IN_OPEN;
    return opened;
  };
  EXPECT_EQ(times_opened("auto"), times_opened("cpu"));
}

TEST(BadModelTest, UnknownArchitecture) {
  SmallModel model;
  model.Set("general.architecture", std::string("eliza"));
  ExpectRefused(model, {"'eliza'", "llama", "qwen2"});
}

TEST(BadModelTest, WhatIsNoLanguageModelIsRefusedByName) {
  for (const auto& [architecture, why] : {std::pair("clip", "reads images"),
                                          {"gemma4-assistant", "guesses for another model"},
                                          {"llada", "writes by diffusion"},
                                          {"pockettts", "makes sound"}}) {
    SmallModel model;
    model.Set("general.architecture", std::string(architecture));
    ExpectRefused(model, {architecture, why});
  }
}

// What is asked for comes from the header; no memory is taken for it before the file is known to
// have as much.
TEST(BadModelTest, PartsThatAreNotThereCostNoMemory) {
  const std::string path = testing::TempDir() + "/parts_that_are_not_there.gguf";
  SmallModel().Write(path);
  const auto gguf = GgufFile::Open(path);
  std::filesystem::remove(path);
  ASSERT_TRUE(gguf.ok()) << gguf.status();
  WeightLoader loader(**gguf, /*backend=*/nullptr);
  const std::vector<std::string> names = {"blk.0.attn_q.weight", "blk.0.attn_k.weight"};
  const absl::Status status = loader.Transposed(names, int64_t{1} << 56, 32).status();
  EXPECT_EQ(status.message(),
            "tensor 'blk.0.attn_q.weight' must be 72057594037927936 x 32, got 32 x 32");
}

// Ollama's files have a vision model's parts in one.
TEST(BadModelTest, ATowerInATextModelsFileIsSkipped) {
  SmallModel model;
  model.Set("llama.vision.block_count", uint32_t{27});
  model.Set("llama.mm.tokens_per_image", uint32_t{256});
  model.tensors["v.blk.0.attn_q.weight"] = {{32, 32}};
  model.tensors["mm.input_projection.weight"] = {{32, 32}};
  auto with_tower = model.Load();
  ASSERT_TRUE(with_tower.ok()) << with_tower.status();
  EXPECT_EQ((*with_tower)->info().weight_bytes, (*SmallModel().Load())->info().weight_bytes);
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
           {"llama.attention.value_length", 5, {"even", "5"}},
           {"llama.attention.value_length", 4, {"attn_v.weight", "8 x 32", "16 x 32"}},
           {"llama.rope.dimension_count", 3, {"rope.dimension_count", "3"}},
           {"llama.rope.dimension_count", 64, {"rope.dimension_count", "64"}},
           {"llama.context_length", 0, {"llama.context_length", "got 0"}},
           {"llama.expert_count", 8, {"llama.expert_used_count"}},
           {"tokenizer.ggml.bos_token_id", 259, {"bos_token_id", "259"}},
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
    for (double value : {1e300, 1e-300}) {  // infinite, and 0, in 32 bits
      SmallModel model;
      model.Set(key, value);
      ExpectRefused(model, {key});
    }
  }
  SmallModel yarn;
  yarn.Set("llama.rope.scaling.type", std::string("yarn"));
  for (const char* key : {"llama.rope.scaling.yarn_beta_fast", "llama.rope.scaling.attn_factor"}) {
    SmallModel model = yarn;
    model.Set(key, 0.0f);
    ExpectRefused(model, {key});
  }
  yarn.Set("llama.rope.freq_base", 1.0f);
  ExpectRefused(yarn, {"llama.rope.freq_base", "must be > 1 for YaRN"});
}

TEST(BadModelTest, RopeScalingThatWeDoNotHave) {
  for (const char* type : {"dynamic", ""}) {
    SmallModel model;
    model.Set("llama.rope.scaling.type", std::string(type));
    ExpectRefused(model, {"llama.rope.scaling.type", type});
  }
  for (const char* key : {"llama.rope.scaling.factor", "llama.rope.scale_linear"}) {
    for (float value : {-1.0f, std::numeric_limits<float>::quiet_NaN()}) {
      SmallModel model;
      model.Set(key, value);
      ExpectRefused(model, {key});
    }
  }
}

TEST(BadModelTest, ExpertsOneByOneAreCalledSo) {
  SmallModel model;
  model.Set("llama.expert_count", uint32_t{2});
  model.Set("llama.expert_used_count", uint32_t{1});
  model.tensors["blk.0.ffn_gate_inp.weight"] = {{32, 2}};
  ExpectRefused(model, {"tensor 'blk.0.ffn_gate_exps.weight' is missing"});
  for (const char* part : {"ffn_gate", "ffn_up", "ffn_down"}) {
    const std::string name = absl::StrCat("blk.0.", part);
    const SmallModel::TensorSpec whole = model.tensors[name + ".weight"];
    model.tensors.erase(name + ".weight");
    for (const char* expert : {".0", ".1"}) {
      model.tensors[absl::StrCat(name, expert, ".weight")] = whole;
    }
  }
  ExpectRefused(model,
                {"tensor 'blk.0.ffn_gate_exps.weight' is missing; the file has experts one by "
                 "one, such as 'blk.0.ffn_gate.0.weight'"});
}

// Each of these changes what llama.cpp, or the model's author, computes.
TEST(BadModelTest, KeysOfTheArchitectureThatAskForMoreAreNamed) {
  auto refused = [](const std::string& key, auto value, const char* text) {
    SmallModel model;
    model.Set(key, value);
    SCOPED_TRACE(key);
    ExpectRefused(model, {key.c_str(), text});
  };
  refused("llama.attention.clamp_kqv", 8.0f, "8");
  refused("llama.attention.max_alibi_bias", 8.0f, "8");
  refused("llama.attention.scale", 0.25f, "0.25");
  refused("llama.attn_logit_softcapping", 50.0f, "50");
  refused("llama.final_logit_softcapping", 30.0f, "30");
  refused("llama.logit_scale", 0.0625f, "0.0625");
  refused("llama.embedding_scale", 12.0f, "12");
  refused("llama.residual_scale", 0.22f, "0.22");
  refused("llama.nextn_predict_layers", uint32_t{1}, "1");
  refused("llama.expert_used_count", uint32_t{2}, "2");
  refused("llama.rope.scaling.yarn_ext_factor", 1.0f, "1");
  refused("llama.rope.dimension_sections", std::vector<int32_t>{1, 1, 1, 1}, "an array of 4");
  refused("llama.hidden_activation", std::string("relu\n"), "'relu\\n'");
  refused("llama.something.of_tomorrow", uint32_t{0}, "0");
  refused("llama.", uint32_t{0}, "0");
}

TEST(BadModelTest, KeysThatAskForNothingAreRead) {
  auto loads = [](const std::string& key, auto value) {
    SmallModel model;
    model.Set(key, value);
    EXPECT_TRUE(model.Load().ok()) << key << ": " << model.Load().status();
  };
  loads("llama.attention.causal", true);
  loads("llama.attention.clamp_kqv", 0.0f);
  loads("llama.attention.layer_norm_epsilon", 1e-5f);
  loads("llama.attention.sliding_window", uint32_t{0});
  loads("llama.attention.sliding_window", uint32_t{64});
  loads("llama.expert_used_count", uint32_t{0});
  loads("llama.image_token_index", uint32_t{10});
  loads("llama.max_position_embeddings", uint32_t{4096});
  loads("llama.logit_scale", 0.0f);
  loads("llama.logit_scale", 1.0f);
  loads("llama.pooling_type", uint32_t{3});
  loads("llama.rope.scaling.original_context_length", uint32_t{32});
  loads("llama.rope.dimension_sections", std::vector<int32_t>{2, 1, 1, 0});
  loads("llama.rope.scaling.finetuned", true);
  loads("llama.rope.scaling.attn_factor", 1.0f);
  loads("llama.rope.scaling.yarn_attn_factor", 1.3f);
  loads("llama.rope.scaling.yarn_ext_factor", -1.0f);
  loads("llama.vocab_size", uint32_t{300});
  loads("tokenizer.ggml.eos_token_id", 4000000000u);
  loads("tokenizer.ggml.padding_token_id", uint32_t{259});
  loads("llama.tensor_data_layout", std::string("Meta AI original pth"));
  // Not of its own name space.
  loads("general.finetune", std::string("Instruct"));
  loads("llamas.attention.clamp_kqv", 8.0f);
  loads("qwen2.attention.clamp_kqv", 8.0f);
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

TEST(BadModelTest, ALoadingThatIsCancelledEnds) {
  const std::string path = std::string(LM_TESTDATA) + "/models/llama-q8_0.gguf";
  const std::atomic<bool> cancel{true};
  EXPECT_TRUE(absl::IsCancelled(Model::Load(path, {.kv_bytes = 1 << 20}, cancel).status()));
}

TEST(BadModelTest, OptionsBeyondTheModel) {
  ExpectRefused(SmallModel(), {"context_length", "64", "65"}, {.context_length = 65});
  ExpectRefused(SmallModel(), {"kv_bytes", "100"}, {.kv_bytes = 100});
  ExpectRefused(SmallModel(), {"tpu"}, {.device = "tpu"});
}

}  // namespace
}  // namespace lm
