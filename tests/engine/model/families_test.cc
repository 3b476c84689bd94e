// What the families read from a file's keys; that they compute the right thing with it is shown by
// golden_logits_test.cc.
#include "engine/model/families.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "engine/gguf/metadata.h"

namespace lm {
namespace {

using testing::HasSubstr;
using Describe = absl::Status (*)(KeyReader& keys, ModelSpec* spec);

// A file's keys, of an architecture, that can be changed.
class FamilyTest : public testing::Test {
 protected:
  void Begin(const std::string& architecture, Describe describe) {
    architecture_ = architecture;
    describe_ = describe;
    keys_.clear();
    Set("block_count", uint64_t{12});
    Set("embedding_length", uint64_t{64});
    Set("feed_forward_length", uint64_t{96});
    Set("context_length", uint64_t{512});
    Set("attention.head_count", uint64_t{4});
    Set("attention.head_count_kv", uint64_t{2});
    Set("attention.layer_norm_rms_epsilon", 1e-6);
  }
  void Set(const std::string& name, MetadataValue value) { keys_[name] = std::move(value); }

  ModelSpec Spec() {
    ModelSpec spec;
    const absl::Status status = Run(&spec);
    EXPECT_TRUE(status.ok()) << status;
    return spec;
  }
  std::string Refusal() {
    ModelSpec spec;
    return std::string(Run(&spec).message());
  }

 private:
  absl::Status Run(ModelSpec* spec) {
    Metadata metadata;
    for (const auto& [name, value] : keys_) metadata.Insert(architecture_ + "." + name, value);
    KeyReader keys(metadata, architecture_);
    const absl::Status status = describe_(keys, spec);
    return status.ok() ? keys.CheckTheOthers() : status;
  }

  std::string architecture_;
  Describe describe_ = nullptr;
  std::map<std::string, MetadataValue> keys_;
};

std::vector<int64_t> Windows(const ModelSpec& spec) {
  std::vector<int64_t> windows;
  for (const LayerSpec& layer : spec.layers) windows.push_back(layer.attention()->window);
  return windows;
}

TEST_F(FamilyTest, Gemma3HasWindowsInFiveOfSixLayers) {
  Begin("gemma3", &DescribeGemma3);
  Set("attention.sliding_window", uint64_t{128});
  Set("rope.freq_base", 1e6);
  Set("rope.scaling.factor", 8.0);
  const ModelSpec spec = Spec();
  EXPECT_EQ(Windows(spec), (std::vector<int64_t>{128, 128, 128, 128, 128, 0,  //
                                                 128, 128, 128, 128, 128, 0}));
  EXPECT_EQ(spec.embedding_scale, 8);
  ASSERT_EQ(spec.ropes.size(), 2u);
  EXPECT_EQ(spec.ropes[0].base, 1e6);
  EXPECT_EQ(spec.ropes[0].scale, 8);
  EXPECT_EQ(spec.ropes[1].base, 1e4);
  EXPECT_EQ(spec.ropes[1].scale, 1);
  EXPECT_EQ(spec.layers[0].attention()->rope, 1);
  EXPECT_EQ(spec.layers[5].attention()->rope, 0);
  EXPECT_TRUE(spec.layers[0].post_norms);
  EXPECT_EQ(spec.layers[0].feed_forward.activation, Activation::kGeluTanh);

  Set("attention.sliding_window_pattern", uint64_t{2});
  EXPECT_EQ(Windows(Spec())[1], 0);
  Set("attention.sliding_window_pattern", std::vector<bool>{1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1});
  EXPECT_EQ(Windows(Spec()), (std::vector<int64_t>{128, 128, 0, 0, 0, 0, 0, 0, 0, 0, 0, 128}));
  Set("attention.sliding_window_pattern", std::vector<uint64_t>{1, 1, 0});
  EXPECT_THAT(Refusal(), HasSubstr("must have a value for each of 12 layers, got 3"));
}

TEST_F(FamilyTest, Gemma3WithoutAWindowTurnsAllLayersAlike) {
  Begin("gemma3", &DescribeGemma3);
  const ModelSpec spec = Spec();
  EXPECT_EQ(Windows(spec), std::vector<int64_t>(12, 0));
  for (const LayerSpec& layer : spec.layers) EXPECT_EQ(layer.attention()->rope, 0);
  // One that the context does not outgrow hides nothing, but its layers turn as they were trained.
  Set("attention.sliding_window", uint64_t{512});
  EXPECT_EQ(Windows(Spec()), std::vector<int64_t>(12, 0));
  EXPECT_EQ(Spec().layers[0].attention()->rope, 1);
}

TEST_F(FamilyTest, Gemma3Of62LayersHasAScaleOfItsOwn) {
  Begin("gemma3", &DescribeGemma3);
  Set("attention.key_length", uint64_t{4});
  Set("attention.value_length", uint64_t{4});
  EXPECT_FLOAT_EQ(Spec().layers[0].attention()->scale, 0.5f);
  Set("block_count", uint64_t{62});
  EXPECT_FLOAT_EQ(Spec().layers[0].attention()->scale, 0.25f);  // of 64 / 4
}

TEST_F(FamilyTest, Qwen35HasADeltaNetInThreeOfFourLayers) {
  Begin("qwen35", &DescribeQwen35);
  Set("ssm.conv_kernel", uint64_t{4});
  Set("ssm.state_size", uint64_t{16});
  Set("ssm.time_step_rank", uint64_t{6});
  Set("ssm.group_count", uint64_t{3});
  Set("ssm.inner_size", uint64_t{120});
  Set("rope.dimension_sections", std::vector<uint64_t>{2, 2, 1, 0});
  ModelSpec spec = Spec();
  ASSERT_EQ(spec.num_layers(), 12);
  for (int64_t i = 0; i < 12; ++i) EXPECT_EQ(spec.layers[i].attention() != nullptr, i % 4 == 3);
  const DeltaNetSpec& net = *spec.layers[0].delta_net();
  EXPECT_EQ(net.conv_cols(), 2 * 3 * 16 + 120);
  EXPECT_EQ(net.conv_state(), 3 * net.conv_cols());
  EXPECT_EQ(net.rule_state(), 6 * 16 * 20);
  EXPECT_TRUE(spec.layers[3].attention()->output_gate);
  EXPECT_EQ(MixerInputCols(spec.layers[0]), net.conv_cols() + 120 + 2 * 6);
  EXPECT_EQ(MixerInputCols(spec.layers[3]), 2 * 64 + 2 * 32);

  // Blocks that predict further tokens are no layers.
  Set("nextn_predict_layers", uint64_t{2});
  EXPECT_EQ(Spec().num_layers(), 10);
  EXPECT_EQ(Spec().skipped_blocks, 2);
  Set("nextn_predict_layers", uint64_t{12});
  EXPECT_THAT(Refusal(), HasSubstr("leaves no layer"));
  Set("nextn_predict_layers", uint64_t{0});

  Set("full_attention_interval", uint64_t{2});
  EXPECT_NE(Spec().layers[1].attention(), nullptr);
  std::vector<bool> recurrent(12, true);
  recurrent[7] = false;
  Set("attention.recurrent_layers", recurrent);
  spec = Spec();
  for (int64_t i = 0; i < 12; ++i) EXPECT_EQ(spec.layers[i].attention() != nullptr, i == 7);

  Set("ssm.group_count", uint64_t{4});
  EXPECT_THAT(Refusal(), HasSubstr("'qwen35.ssm.time_step_rank' = 6 must be a multiple of "
                                   "'qwen35.ssm.group_count' = 4"));
  Set("ssm.group_count", uint64_t{3});
  Set("ssm.state_size", uint64_t{4096});
  Set("ssm.inner_size", uint64_t{6 << 20});
  EXPECT_THAT(Refusal(), HasSubstr("a recurrent state of"));
}

TEST_F(FamilyTest, WindowsOfOthersAreRefused) {
  Begin("llama", &DescribeLlama);
  Set("attention.sliding_window", uint64_t{4096});
  EXPECT_EQ(Windows(Spec()), std::vector<int64_t>(12, 0));
  Set("attention.sliding_window", uint64_t{100});
  EXPECT_THAT(Refusal(), HasSubstr("'llama.attention.sliding_window' = 100"));
}

}  // namespace
}  // namespace lm
