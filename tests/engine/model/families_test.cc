// What the families read from a file's keys; that they compute the right thing with it is shown by
// golden_logits_test.cc.
#include "engine/model/families.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/engine/model/family_fixture.h"

namespace lm {
namespace {

using testing::HasSubstr;

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
  EXPECT_STREQ(spec.layers[0].post_mixer_norm, "post_attention_norm");
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

TEST_F(FamilyTest, Gemma4HasHeadsOfTwoKindsAndSharesKeys) {
  Begin("gemma4", &DescribeGemma4);
  EXPECT_THAT(Refusal(), HasSubstr("gemma4.attention.sliding_window"));
  Set("attention.sliding_window", uint64_t{128});
  EXPECT_THAT(Refusal(), HasSubstr("gemma4.attention.sliding_window_pattern"));
  Set("attention.sliding_window_pattern", std::vector<bool>{1, 1, 0, 1, 1, 0, 1, 1, 0, 1, 1, 0});
  Set("attention.key_length", uint64_t{32});
  Set("attention.value_length", uint64_t{32});
  Set("attention.key_length_swa", uint64_t{16});
  Set("attention.value_length_swa", uint64_t{16});
  Set("attention.head_count_kv", std::vector<uint64_t>{2, 2, 1, 2, 2, 1, 2, 2, 1, 2, 2, 1});
  Set("attention.shared_kv_layers", uint64_t{3});
  Set("embedding_length_per_layer_input", uint64_t{8});
  Set("rope.freq_base", 1e6);
  const ModelSpec spec = Spec();
  EXPECT_EQ(spec.per_layer_input, 8);
  EXPECT_EQ(Windows(spec)[1], 128);
  EXPECT_EQ(Windows(spec)[2], 0);
  const AttentionSpec& full = *spec.layers[2].attention();
  const AttentionSpec& windowed = *spec.layers[1].attention();
  EXPECT_EQ(full.key_dim, 32);
  EXPECT_EQ(full.kv_heads, 1);
  EXPECT_EQ(full.scale, 1);
  EXPECT_TRUE(full.value_norm && full.value_is_key);
  EXPECT_EQ(windowed.key_dim, 16);
  EXPECT_EQ(windowed.rope, 1);
  EXPECT_EQ(spec.ropes[0].base, 1e6);
  EXPECT_EQ(spec.ropes[1].base, 1e4);
  EXPECT_EQ(spec.logit_softcap, 30);
  EXPECT_EQ(spec.ropes[1].dim, 16);
  EXPECT_EQ(spec.ropes[1].factors, nullptr);
  EXPECT_EQ(spec.layers[8].attention()->kv_source, -1);
  EXPECT_EQ(spec.layers[9].attention()->kv_source, 7);
  EXPECT_EQ(spec.layers[11].attention()->kv_source, 8);
  EXPECT_EQ(MixerInputCols(spec.layers[8]), 4 * 32 + 2 * 32);
  EXPECT_EQ(MixerInputCols(spec.layers[11]), 4 * 32);

  Set("rope.freq_base_swa", 5e4);
  Set("final_logit_softcapping", 0.0);
  EXPECT_EQ(Spec().ropes[1].base, 5e4);
  EXPECT_EQ(Spec().logit_softcap, 0);

  Set("attention.shared_kv_layers", uint64_t{11});
  EXPECT_THAT(Refusal(), HasSubstr("layer 1 has none to share with"));
  Set("attention.shared_kv_layers", uint64_t{0});
  Set("attention.value_length_swa", uint64_t{8});
  EXPECT_THAT(Refusal(), HasSubstr("heads of keys and values must be even and alike"));
}

TEST_F(FamilyTest, Llama4SeesChunksAndWeighsWhatItsExpertsSee) {
  Begin("llama4", &DescribeLlama4);
  Set("context_length", uint64_t{16384});
  Set("expert_count", uint64_t{16});
  Set("expert_used_count", uint64_t{1});
  Set("expert_feed_forward_length", uint64_t{40});
  Set("interleave_moe_layer_step", uint64_t{2});
  const ModelSpec spec = Spec();
  for (int64_t i = 0; i < 12; ++i) {
    SCOPED_TRACE(i);
    const AttentionSpec& attention = *spec.layers[i].attention();
    const bool full = i % 4 == 3;
    EXPECT_EQ(attention.window, full ? 0 : 8192);
    EXPECT_EQ(attention.rope, full ? -1 : 0);
    EXPECT_EQ(attention.tempered, full);
    EXPECT_EQ(attention.head_norm, full ? HeadNorm::kNone : HeadNorm::kPlain);
    ASSERT_EQ(spec.layers[i].feed_forward.experts.has_value(), i % 2 == 1);
    if (i % 2 == 0) continue;
    EXPECT_TRUE(spec.layers[i].feed_forward.experts->weigh_input);
    EXPECT_EQ(spec.layers[i].feed_forward.experts->shared_width, 40);
  }
  EXPECT_EQ(spec.layers[0].attention()->window_kind, WindowKind::kChunked);
  EXPECT_EQ(spec.temperature.offset, 1);
  Set("expert_count", uint64_t{128});  // Maverick norms no heads
  EXPECT_EQ(Spec().layers[0].attention()->head_norm, HeadNorm::kNone);
  Set("context_length", uint64_t{8192});
  EXPECT_EQ(Windows(Spec()), std::vector<int64_t>(12, 0));
  Set("attention.sliding_window", uint64_t{0});
  EXPECT_THAT(Refusal(), HasSubstr("'llama4.attention.sliding_window' must be 1 to"));
  Set("attention.sliding_window", uint64_t{8192});
  Set("attention.chunk_size", uint64_t{8192});
  Set("expert_count", uint64_t{4});
  Set("use_qk_norm", false);
  EXPECT_EQ(Spec().layers[0].attention()->head_norm, HeadNorm::kNone);
  Set("attention.chunk_size", uint64_t{4096});
  EXPECT_THAT(Refusal(), HasSubstr("'llama4.attention.chunk_size' must be 8192"));
}

TEST_F(FamilyTest, EachLayerOfALlamaHasTheWindowThatItsFileSays) {
  Begin("llama", &DescribeLlama);
  EXPECT_EQ(Windows(Spec()), std::vector<int64_t>(12, 0));
  Set("attention.sliding_window", uint64_t{128});
  EXPECT_EQ(Windows(Spec()), std::vector<int64_t>(12, 128));
  Set("attention.sliding_window", uint64_t{512});
  EXPECT_EQ(Windows(Spec()), std::vector<int64_t>(12, 0));
}

TEST_F(FamilyTest, PairsOfNoSectionStandStill) {
  Begin("qwen3vl", &DescribeQwen3Vl);
  Set("attention.key_length", uint64_t{32});
  Set("attention.value_length", uint64_t{32});
  Set("rope.dimension_sections", std::vector<uint64_t>{6, 5, 5, 0});
  EXPECT_EQ(Spec().ropes[0].still, std::vector<int64_t>());
  Set("rope.dimension_sections", std::vector<uint64_t>{6, 4, 4, 2});
  EXPECT_EQ(Spec().ropes[0].still, (std::vector<int64_t>{13, 14}));
  Begin("qwen2vl", &DescribeQwen2Vl);
  EXPECT_THAT(Refusal(), HasSubstr("qwen2vl.rope.dimension_sections"));
  Set("rope.dimension_sections", std::vector<uint64_t>{2, 2, 2, 2});
  EXPECT_EQ(Spec().ropes[0].still, (std::vector<int64_t>{6, 7}));
  Set("rope.dimension_sections", std::vector<uint64_t>{3, 3, 2});
  EXPECT_EQ(Refusal(),
            "'qwen2vl.rope.dimension_sections' must have a value for each of 4 sections, got 3");
}

TEST_F(FamilyTest, HalvesTurnWhereGlm4HasSections) {
  Begin("glm4", &DescribeGlm4);
  EXPECT_EQ(Spec().ropes[0].pairing, RopePairing::kAdjacent);
  Set("rope.dimension_sections", std::vector<uint64_t>{2, 3, 2, 1});
  EXPECT_EQ(Spec().ropes[0].pairing, RopePairing::kHalves);
  EXPECT_EQ(Spec().ropes[0].still, std::vector<int64_t>{7});
  Set("rope.dimension_sections", std::vector<uint64_t>{8, 0, 0, 0});
  EXPECT_EQ(Spec().ropes[0].pairing, RopePairing::kAdjacent);
  EXPECT_EQ(Spec().ropes[0].still, std::vector<int64_t>());
  Begin("glm4moe", &DescribeGlm4Moe);
  Set("expert_count", uint64_t{8});
  Set("expert_used_count", uint64_t{2});
  Set("expert_feed_forward_length", uint64_t{32});
  Set("rope.dimension_sections", std::vector<uint64_t>{2, 3, 2, 1});
  EXPECT_EQ(Spec().ropes[0].pairing, RopePairing::kHalves);
  EXPECT_EQ(Spec().ropes[0].still, std::vector<int64_t>{7});
}

TEST_F(FamilyTest, EachLayerOfGlm4MoeMayNormItsHeads) {
  Begin("glm4moe", &DescribeGlm4Moe);
  AddTensor("blk.3.attn_q_norm.weight");
  const ModelSpec spec = Spec();
  for (int64_t i = 0; i < 12; ++i) {
    EXPECT_EQ(spec.layers[i].attention()->head_norm, i == 3 ? HeadNorm::kEach : HeadNorm::kNone);
  }
}

TEST_F(FamilyTest, NeighboursTurnInAPartOfAHeadOfChatGlm) {
  Begin("chatglm", &DescribeChatGlm);
  Set("rope.dimension_count", uint64_t{8});
  const ModelSpec spec = Spec();
  EXPECT_EQ(spec.ropes[0].pairing, RopePairing::kAdjacent);
  EXPECT_EQ(spec.ropes[0].dim, 8);
  EXPECT_EQ(spec.layers[0].post_mixer_norm, nullptr);
}

TEST_F(FamilyTest, LayersOfDeciLackWhatTheFileSays) {
  using Numbers = std::vector<uint64_t>;
  Begin("deci", &DescribeDeci);
  Set("block_count", uint64_t{4});
  Set("attention.head_count", Numbers{4, 0, 4, 0});
  Set("attention.head_count_kv", Numbers{2, 0, 1, 0});
  Set("feed_forward_length", Numbers{96, 64, 32, 0});
  const ModelSpec spec = Spec();
  EXPECT_EQ(spec.ropes[0].pairing, RopePairing::kAdjacent);
  EXPECT_EQ(spec.layers[0].attention()->kv_heads, 2);
  EXPECT_EQ(spec.layers[2].attention()->kv_heads, 1);
  EXPECT_EQ(spec.layers[2].feed_forward.width, 32);
  for (const int i : {1, 3}) {
    EXPECT_FALSE(spec.layers[i].has_mixer());
    EXPECT_EQ(spec.layers[i].mixer_norm, nullptr);
  }
  EXPECT_EQ(spec.layers[1].feed_forward.width, 64);
  EXPECT_FALSE(spec.layers[3].feed_forward.exists());
  EXPECT_EQ(spec.layers[3].feed_forward_norm, nullptr);
  Set("attention.head_count_kv", Numbers{2, 0, 0, 0});
  EXPECT_THAT(Refusal(), HasSubstr("layer 2 has heads and no KV heads (linear attention)"));
  Set("attention.head_count_kv", Numbers{2, 0, 1, 0});
  Set("feed_forward_length", Numbers{0, 64, 32, 0});
  EXPECT_THAT(Refusal(), HasSubstr("layer 0 has attention and no feed-forward"));
}

TEST_F(FamilyTest, GroupsOfExpertsAreAlikeAndHoldThoseChosen) {
  Begin("qwen3moe", &DescribeQwen3);
  Set("expert_count", uint64_t{8});
  Set("expert_used_count", uint64_t{4});
  Set("expert_group_count", uint64_t{4});
  Set("expert_group_used_count", uint64_t{2});
  EXPECT_EQ(Spec().layers[0].feed_forward.experts->router.chosen_groups, 2);
  Set("expert_group_used_count", uint64_t{1});
  EXPECT_THAT(Refusal(), HasSubstr("'qwen3moe.expert_group_count' = 4: 4 of 8 experts cannot be "
                                   "chosen in 1 groups"));
  Set("expert_group_count", uint64_t{3});
  Set("expert_group_used_count", uint64_t{2});
  EXPECT_THAT(Refusal(), HasSubstr("'qwen3moe.expert_group_count' = 3: 4 of 8 experts"));
}

TEST_F(FamilyTest, Qwen3VlMaySayThatItHasNoSharedExpert) {
  Begin("qwen3vlmoe", &DescribeQwen3Vl);
  Set("rope.dimension_sections", std::vector<uint64_t>{3, 3, 2, 0});
  Set("expert_count", uint64_t{8});
  Set("expert_used_count", uint64_t{2});
  Set("expert_shared_feed_forward_length", uint64_t{0});
  EXPECT_EQ(Spec().layers[0].feed_forward.experts->shared_width, 0);
  Set("expert_shared_feed_forward_length", uint64_t{16});
  EXPECT_THAT(Refusal(), HasSubstr("expert_shared_feed_forward_length"));
}

TEST_F(FamilyTest, Qwen35HasADeltaNetInThreeOfFourLayers) {
  Begin("qwen35", &DescribeQwen35);
  Set("ssm.conv_kernel", uint64_t{4});
  Set("ssm.state_size", uint64_t{16});
  Set("ssm.time_step_rank", uint64_t{6});
  Set("ssm.group_count", uint64_t{3});
  Set("ssm.inner_size", uint64_t{120});
  Set("rope.dimension_sections", std::vector<uint64_t>{2, 2, 1, 3});
  EXPECT_EQ(Spec().ropes[0].still, (std::vector<int64_t>{5, 6, 7}));
  Set("rope.dimension_sections", std::vector<uint64_t>{3, 3, 2, 0});
  ModelSpec spec = Spec();
  EXPECT_EQ(spec.ropes[0].still, std::vector<int64_t>());
  ASSERT_EQ(spec.num_layers(), 12);
  for (int64_t i = 0; i < 12; ++i) EXPECT_EQ(spec.layers[i].attention() != nullptr, i % 4 == 3);
  const DeltaNetSpec& net = *spec.layers[0].delta_net();
  EXPECT_EQ(net.conv_cols(), 2 * 3 * 16 + 120);
  EXPECT_EQ(net.conv_state(), 3 * net.conv_cols());
  EXPECT_EQ(net.rule_state(), 6 * 16 * 20);
  EXPECT_EQ(spec.layers[3].attention()->output_gate, OutputGate::kInQ);
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

TEST_F(FamilyTest, ExpertsBeginBehindTheDenseLayers) {
  Begin("glm4moe", &DescribeGlm4Moe);
  Set("expert_count", uint64_t{8});
  EXPECT_THAT(Refusal(), HasSubstr("glm4moe.expert_used_count"));
  Set("expert_used_count", uint64_t{9});
  EXPECT_THAT(Refusal(), HasSubstr("must be 1 to 8, got 9"));
  Set("expert_used_count", uint64_t{3});
  Set("leading_dense_block_count", uint64_t{2});
  Set("expert_feed_forward_length", uint64_t{40});
  Set("expert_shared_count", uint64_t{2});
  Set("expert_weights_scale", 1.5);
  EXPECT_FALSE(Spec().layers[2].feed_forward.experts->router.normalised);
  Set("expert_weights_norm", true);
  // Converters write both numbers of models whose experts are one group.
  Set("expert_group_count", uint64_t{1});
  Set("expert_group_used_count", uint64_t{1});
  EXPECT_EQ(Spec().layers[2].feed_forward.experts->router.groups, 1);
  Set("expert_group_used_count", uint64_t{2});
  EXPECT_THAT(Refusal(), HasSubstr("'glm4moe.expert_group_used_count' must be 0 to 1, got 2"));
  Set("expert_group_count", uint64_t{4});
  const ModelSpec spec = Spec();
  EXPECT_FALSE(spec.layers[1].feed_forward.experts.has_value());
  ASSERT_TRUE(spec.layers[2].feed_forward.experts.has_value());
  const ExpertSpec& experts = *spec.layers[2].feed_forward.experts;
  EXPECT_EQ(experts.count, 8);
  EXPECT_EQ(experts.width, 40);
  EXPECT_EQ(experts.shared_width, 80);
  EXPECT_FALSE(experts.shared_gate);
  EXPECT_EQ(experts.router.gate, RouterGate::kSigmoid);
  EXPECT_EQ(experts.router.chosen, 3);
  EXPECT_EQ(experts.router.scale, 1.5f);
  EXPECT_TRUE(experts.router.normalised);
  EXPECT_EQ(experts.router.groups, 4);
  EXPECT_EQ(experts.router.chosen_groups, 2);
  Set("expert_gating_func", uint64_t{1});
  EXPECT_EQ(Spec().layers[2].feed_forward.experts->router.gate, RouterGate::kSoftmax);
  // Each layer may have a number of its own.
  std::vector<uint64_t> used(12, 3);
  used[7] = 5;
  Set("expert_used_count", used);
  Set("expert_group_used_count", uint64_t{3});
  EXPECT_EQ(Spec().layers[6].feed_forward.experts->router.chosen, 3);
  EXPECT_EQ(Spec().layers[7].feed_forward.experts->router.chosen, 5);
  used[1] = 0;
  Set("expert_used_count", used);
  Spec();
  used[2] = 0;
  Set("expert_used_count", used);
  EXPECT_THAT(Refusal(),
              HasSubstr("'glm4moe.expert_used_count' of layer 2 must be 1 or more, got 0"));
}

TEST_F(FamilyTest, ExpertsOfUnstatedWidthShareThatOfAFeedForward) {
  struct Case {
    const char* architecture;
    Describe describe;
    int64_t shared_width;
  };
  for (const Case& c :
       {Case{"qwen2moe", &DescribeQwen2Moe, 96}, Case{"qwen3moe", &DescribeQwen3, 0},
        Case{"qwen3vlmoe", &DescribeQwen3Vl, 0}, Case{"qwen35moe", &DescribeQwen35, 96},
        Case{"qwen3next", &DescribeQwen3Next, 96}, Case{"glm4moe", &DescribeGlm4Moe, 24},
        Case{"mellum", &DescribeMellum, 0}}) {
    SCOPED_TRACE(c.architecture);
    Begin(c.architecture, c.describe);
    if (c.describe == &DescribeQwen3Vl) {
      Set("rope.dimension_sections", std::vector<uint64_t>{3, 3, 2, 0});
    }
    if (c.describe == &DescribeQwen35 || c.describe == &DescribeQwen3Next) {
      Set("ssm.conv_kernel", uint64_t{4});
      Set("ssm.state_size", uint64_t{16});
      Set("ssm.time_step_rank", uint64_t{6});
      Set("ssm.group_count", uint64_t{3});
      Set("ssm.inner_size", uint64_t{120});
    }
    Set("expert_count", uint64_t{8});
    Set("expert_used_count", uint64_t{4});
    if (c.shared_width == 24) Set("expert_shared_count", uint64_t{1});
    for (const bool stated : {false, true}) {
      if (stated) Set("expert_feed_forward_length", uint64_t{0});
      const ExpertSpec experts = *Spec().layers[11].feed_forward.experts;
      EXPECT_EQ(experts.width, 96 / 4);
      EXPECT_EQ(experts.shared_width, c.shared_width);
      EXPECT_EQ(experts.shared_gate, c.shared_width == 96);
    }
    Set("expert_feed_forward_length", uint64_t{40});
    EXPECT_EQ(Spec().layers[11].feed_forward.experts->width, 40);
    if (c.shared_width != 96) continue;
    Set("expert_shared_feed_forward_length", uint64_t{48});
    EXPECT_EQ(Spec().layers[11].feed_forward.experts->shared_width, 48);
  }
  // Of others each is so wide.
  Begin("olmoe", &DescribeOlmoe);
  Set("expert_count", uint64_t{8});
  Set("expert_used_count", uint64_t{4});
  EXPECT_EQ(Spec().layers[11].feed_forward.experts->width, 96);
}

TEST_F(FamilyTest, AFamilyWithoutExpertsRefusesThem) {
  Begin("starcoder2", &DescribeStarCoder2);
  Set("attention.layer_norm_epsilon", 1e-5);
  Spec();
  Set("expert_count", uint64_t{8});
  EXPECT_THAT(Refusal(), HasSubstr("'starcoder2.expert_count' = 8 asks for something"));
}

TEST_F(FamilyTest, AModelWithoutExpertsMaySayHowTheyWouldBeChosen) {
  for (const bool one : {false, true}) {
    Begin(one ? "hunyuan-dense" : "deepseek2", one ? &DescribeHunyuan : &DescribeDeepSeek2);
    if (one) {
      Set("expert_count", uint64_t{1});
      Set("expert_used_count", uint64_t{1});
    } else {  // Youtu-LLM
      Set("attention.kv_lora_rank", uint64_t{32});
      Set("rope.dimension_count", uint64_t{8});
    }
    Set("expert_feed_forward_length", uint64_t{96});
    Set("expert_shared_count", uint64_t{1});
    Set("expert_shared_feed_forward_length", uint64_t{96});
    Set("expert_gating_func", uint64_t{2});
    Set("expert_group_count", uint64_t{1});
    Set("expert_group_used_count", uint64_t{1});
    Set("expert_weights_norm", true);
    Set("expert_weights_scale", 2.5);
    Set("leading_dense_block_count", uint64_t{12});
    for (const LayerSpec& layer : Spec().layers) {
      EXPECT_FALSE(layer.feed_forward.experts.has_value());
      EXPECT_EQ(layer.feed_forward.width, 96);
    }
    Set("expert_count", uint64_t{0});
    Set("expert_used_count", uint64_t{1});
    EXPECT_THAT(Refusal(), HasSubstr("expert_used_count' = 1 asks for something"));
  }
  Begin("hunyuan-moe", &DescribeHunyuan);
  Set("expert_count", uint64_t{1});
  Set("expert_used_count", uint64_t{1});
  EXPECT_TRUE(Spec().layers[0].feed_forward.experts.has_value());
}

TEST_F(FamilyTest, Lfm2ConvolvesWhereThereAreNoKvHeads) {
  Begin("lfm2", &DescribeLfm2);
  Set("shortconv.l_cache", uint64_t{3});
  Set("attention.head_count_kv", std::vector<uint64_t>{0, 0, 2, 0, 0, 2, 0, 0, 2, 0, 0, 1});
  const ModelSpec spec = Spec();
  for (int64_t i = 0; i < 12; ++i) {
    EXPECT_EQ(spec.layers[i].short_conv() != nullptr, i % 3 != 2) << i;
  }
  EXPECT_EQ(spec.layers[2].attention()->kv_heads, 2);
  EXPECT_EQ(spec.layers[11].attention()->kv_heads, 1);
  EXPECT_EQ(MixerInputCols(spec.layers[0]), 3 * 64);
  EXPECT_EQ(StatesOf(spec.layers[0]).bytes(), 2 * 64 * 4);
  Set("attention.head_count_kv", std::vector<uint64_t>{0, 2});
  EXPECT_THAT(Refusal(), HasSubstr("must have a value for each of 12 layers, got 2"));
}

TEST_F(FamilyTest, FactorsThatMiniCpmDoesNotStateAreThoseOfItsConverter) {
  Begin("minicpm", &DescribeMiniCpm);
  Set("embedding_length", uint64_t{2304});
  Set("attention.head_count", uint64_t{36});
  Set("attention.head_count_kv", uint64_t{36});
  const ModelSpec unstated = Spec();
  Set("embedding_scale", 12.0);
  Set("residual_scale", 1.4 / std::sqrt(12.0));
  Set("logit_scale", 2304.0 / 256);
  const ModelSpec stated = Spec();
  EXPECT_EQ(unstated.embedding_scale, stated.embedding_scale);
  EXPECT_FLOAT_EQ(unstated.layers[0].residual_scale, stated.layers[0].residual_scale);
  EXPECT_EQ(stated.logit_scale, 1 / 9.0f);
  EXPECT_EQ(unstated.logit_scale, stated.logit_scale);
}

TEST_F(FamilyTest, MiniCpm3NeedNotSayHowWideItsValuesAre) {
  Begin("minicpm3", &DescribeMiniCpm3);
  Set("attention.kv_lora_rank", uint64_t{32});
  Set("attention.key_length", uint64_t{24});
  Set("rope.dimension_count", uint64_t{8});
  EXPECT_EQ(Spec().layers[0].attention()->latent->nope, 16);
  EXPECT_EQ(Spec().layers[0].attention()->latent->value_dim, 64 / 4);
  Set("attention.value_length", uint64_t{20});
  EXPECT_EQ(Spec().layers[11].attention()->latent->value_dim, 20);
}

TEST_F(FamilyTest, DeepSeek2KeepsOneVectorForAllHeads) {
  Begin("deepseek2", &DescribeDeepSeek2);
  Set("attention.head_count_kv", uint64_t{1});
  Set("attention.kv_lora_rank", uint64_t{32});
  Set("attention.key_length", uint64_t{40});
  Set("attention.value_length", uint64_t{32});
  Set("attention.key_length_mla", uint64_t{24});
  Set("attention.value_length_mla", uint64_t{20});
  Set("rope.dimension_count", uint64_t{8});
  const ModelSpec spec = Spec();
  const AttentionSpec& attention = *spec.layers[0].attention();
  EXPECT_EQ(attention.latent_rope(), 8);
  EXPECT_EQ(attention.latent->nope, 16);
  EXPECT_EQ(attention.latent->q_rank, 0);
  EXPECT_EQ(MixerInputCols(spec.layers[0]), 4 * 24 + 40);
  EXPECT_EQ(MixerOutputCols(spec.layers[0]), 4 * 20);
  EXPECT_NEAR(attention.scale, 1 / std::sqrt(24.0), 1e-7);
  Unset("attention.value_length");
  EXPECT_EQ(Spec().layers[0].attention()->value_dim, 32);
  Set("attention.value_length", uint64_t{32});
  // The converter writes a tenth of the multiplier of YaRN's logarithm.
  Set("rope.scaling.type", std::string("yarn"));
  Set("rope.scaling.factor", 8.0);
  Set("rope.scaling.yarn_log_multiplier", 0.0707);
  const double growth = 1 + 0.0707 * std::log(8.0);
  EXPECT_NEAR(Spec().layers[0].attention()->scale, growth * growth / std::sqrt(24.0), 1e-6);
  EXPECT_NEAR(Spec().ropes[0].magnitude, 1, 1e-6);
  // Mistral Large 3.
  EXPECT_FALSE(Spec().layers[0].attention()->tempered);
  Set("attention.temperature_length", uint64_t{128});
  EXPECT_FALSE(Spec().layers[0].attention()->tempered);
  Set("attention.temperature_scale", 0.1);
  EXPECT_TRUE(Spec().layers[11].attention()->tempered);
  EXPECT_EQ(Spec().temperature.length, 128);
  EXPECT_NEAR(Spec().temperature.beta, 0.1, 1e-9);
  Set("attention.temperature_length", uint64_t{0});
  EXPECT_THAT(Refusal(), HasSubstr("'deepseek2.attention.temperature_length' must be 1 to"));
  Set("attention.temperature_length", uint64_t{128});
  Set("attention.key_length", uint64_t{48});
  EXPECT_THAT(Refusal(), HasSubstr("has one KV head of 40 and 32 values, got 1 of 48 and 32"));
  // Mistral 4: cos and sin grow, by what the scores do not.
  Rename("mistral4");
  Set("attention.key_length", uint64_t{40});
  const double rest = (1 + 0.1 * std::log(8.0)) / growth;
  EXPECT_NEAR(Spec().ropes[0].magnitude, rest, 1e-6);
  EXPECT_NEAR(Spec().layers[0].attention()->scale,
              std::pow(1 + 0.1 * std::log(8.0), 2) / std::sqrt(24.0), 1e-6);
}

TEST_F(FamilyTest, SmolLm3TurnsThreeOfFourLayers) {
  Begin("smollm3", &DescribeSmolLm3);
  const ModelSpec spec = Spec();
  for (int64_t i = 0; i < 12; ++i) {
    EXPECT_EQ(spec.layers[i].attention()->rope, i % 4 == 3 ? -1 : 0) << i;
  }
}

TEST_F(FamilyTest, GraniteReadsItsFactors) {
  Begin("granite", &DescribeGranite);
  Set("deepstack_mapping", std::vector<int64_t>(12, -1));  // of Granite Vision's images
  EXPECT_EQ(Spec().logit_scale, 1);
  Set("embedding_scale", 12.0);
  Set("residual_scale", 0.25);
  Set("attention.scale", 0.5);
  Set("logit_scale", 8.0);
  ModelSpec spec = Spec();
  EXPECT_EQ(spec.embedding_scale, 12);
  EXPECT_EQ(spec.logit_scale, 0.125f);
  EXPECT_EQ(spec.layers[0].residual_scale, 0.25f);
  EXPECT_EQ(spec.layers[0].attention()->scale, 0.5f);
  EXPECT_EQ(spec.layers[0].attention()->rope, 0);
  Set("residual_scale", 0.0);
  Set("rope.scaling.finetuned", false);
  spec = Spec();
  EXPECT_EQ(spec.layers[0].residual_scale, 1);
  EXPECT_EQ(spec.layers[0].attention()->rope, -1);
  // Of others the key says how they were trained.
  Begin("granitemoe", &DescribeGraniteMoe);
  Set("rope.scaling.finetuned", false);
  EXPECT_EQ(Spec().layers[0].attention()->rope, 0);
  Begin("granite_swa", &DescribeGraniteSwa);
  Set("attention.sliding_window_pattern", std::vector<bool>(12, true));
  Set("rope.scaling.finetuned", false);
  EXPECT_EQ(Spec().layers[0].attention()->rope, 0);
}

TEST_F(FamilyTest, GraniteHybridHasStateSpacesWhereThereAreNoKvHeads) {
  Begin("granitehybrid", &DescribeGraniteHybrid);
  Set("attention.head_count_kv", std::vector<uint64_t>{0, 0, 2, 0, 0, 2, 0, 0, 2, 0, 0, 2});
  Set("ssm.conv_kernel", uint64_t{4});
  Set("ssm.state_size", uint64_t{16});
  Set("ssm.time_step_rank", uint64_t{6});
  Set("ssm.group_count", uint64_t{2});
  Set("ssm.inner_size", uint64_t{120});
  Set("attention.scale", 0.5);
  const ModelSpec spec = Spec();
  for (int64_t i = 0; i < 12; ++i) EXPECT_EQ(spec.layers[i].attention() != nullptr, i % 3 == 2);
  EXPECT_EQ(spec.layers[2].attention()->scale, 0.5f);
  EXPECT_EQ(MixerInputCols(spec.layers[0]), 120 + (120 + 2 * 2 * 16) + 6);
  EXPECT_EQ(MixerOutputCols(spec.layers[0]), 120);
  EXPECT_EQ(StatesOf(spec.layers[0]).conv, 3 * (120 + 2 * 2 * 16));
  EXPECT_EQ(StatesOf(spec.layers[0]).rule, 120 * 16);
  Set("ssm.group_count", uint64_t{4});
  EXPECT_THAT(Refusal(), HasSubstr("must be a multiple of 'granitehybrid.ssm.group_count' = 4"));
  // The converter writes what a shared expert would have of models without experts, too.
  Set("ssm.group_count", uint64_t{2});
  Set("expert_count", uint64_t{0});
  Set("expert_used_count", uint64_t{0});
  Set("expert_shared_feed_forward_length", uint64_t{2048});
  EXPECT_FALSE(Spec().layers[0].feed_forward.experts.has_value());
}

TEST_F(FamilyTest, NemotronHHasOneThingALayer) {
  Begin("nemotron_h_moe", &DescribeNemotronH);
  Set("ssm.conv_kernel", uint64_t{4});
  Set("ssm.state_size", uint64_t{16});
  Set("ssm.time_step_rank", uint64_t{6});
  Set("ssm.group_count", uint64_t{2});
  Set("ssm.inner_size", uint64_t{120});
  Set("attention.head_count_kv", std::vector<uint64_t>{0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 2});
  Set("feed_forward_length", std::vector<uint64_t>{0, 96, 0, 0, 0, 96, 0, 0, 0, 96, 0, 0});
  ModelSpec spec = Spec();
  for (int64_t i = 0; i < 12; ++i) {
    SCOPED_TRACE(i);
    const LayerSpec& layer = spec.layers[i];
    EXPECT_EQ(layer.state_space() != nullptr, i % 2 == 0);
    EXPECT_EQ(layer.attention() != nullptr, i % 4 == 3);
    EXPECT_EQ(layer.feed_forward.exists(), i % 4 == 1);
    EXPECT_EQ(layer.has_mixer(), i % 4 != 1);
    EXPECT_EQ(layer.mixer_norm == nullptr, i % 4 == 1);
    EXPECT_EQ(layer.feed_forward_norm == nullptr, i % 4 != 1);
  }
  EXPECT_EQ(spec.layers[3].attention()->rope, -1);
  EXPECT_FALSE(spec.layers[1].feed_forward.gated);
  Set("expert_count", uint64_t{4});
  Set("expert_used_count", uint64_t{2});
  Set("expert_feed_forward_length", uint64_t{40});
  Set("moe_latent_size", uint64_t{24});
  spec = Spec();
  EXPECT_FALSE(spec.layers[0].feed_forward.exists());
  ASSERT_TRUE(spec.layers[1].feed_forward.experts.has_value());
  EXPECT_EQ(spec.layers[1].feed_forward.experts->latent, 24);
  EXPECT_EQ(spec.layers[1].feed_forward.experts->width, 40);
  // Those that say nothing share the width.
  Unset("expert_feed_forward_length");
  EXPECT_EQ(Spec().layers[1].feed_forward.experts->width, 96 / 2);
  // Of what is no feed-forward there may be none.
  Set("expert_used_count", std::vector<uint64_t>{0, 2, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0});
  Set("expert_feed_forward_length", std::vector<uint64_t>{0, 40, 0, 0, 0, 48, 0, 0, 0, 40, 0, 0});
  EXPECT_FALSE(Spec().layers[0].feed_forward.exists());
  EXPECT_EQ(Spec().layers[5].feed_forward.experts->router.chosen, 3);
  EXPECT_EQ(Spec().layers[5].feed_forward.experts->width, 48);
  Set("expert_used_count", uint64_t{2});
  Set("expert_feed_forward_length", uint64_t{40});
  Set("moe_latent_size", uint64_t{65});
  EXPECT_THAT(Refusal(), HasSubstr("'nemotron_h_moe.moe_latent_size' must be 0 to 64, got 65"));
}

TEST_F(FamilyTest, TheEpsilonOfNemotronHMayHaveAnotherName) {
  Begin("nemotron_h", &DescribeNemotronH);
  Set("ssm.conv_kernel", uint64_t{4});
  Set("ssm.state_size", uint64_t{16});
  Set("ssm.time_step_rank", uint64_t{6});
  Set("ssm.group_count", uint64_t{2});
  Set("ssm.inner_size", uint64_t{120});
  Set("attention.layer_norm_epsilon", 1e-3);
  EXPECT_EQ(Spec().norm_eps, 1e-6f);
  Unset("attention.layer_norm_rms_epsilon");
  EXPECT_EQ(Spec().norm_eps, 1e-3f);
  Unset("attention.layer_norm_epsilon");
  EXPECT_THAT(Refusal(), HasSubstr("nemotron_h.attention.layer_norm_rms_epsilon"));
}

struct WindowedFamily {
  const char* architecture;
  Describe describe;
  int32_t layers;
};

TEST_F(FamilyTest, WindowsTurnByTheBaseThatTheFileStates) {
  for (const WindowedFamily& c : {WindowedFamily{"gemma2", &DescribeGemma2, 12},
                                  WindowedFamily{"gpt-oss", &DescribeGptOss, 12},
                                  WindowedFamily{"afmoe", &DescribeAfmoe, 12}}) {
    SCOPED_TRACE(c.architecture);
    Begin(c.architecture, c.describe);
    Set("attention.sliding_window", uint64_t{64});
    Set("rope.freq_base", 1e5);
    Set("rope.scaling.type", std::string("linear"));
    Set("rope.scaling.factor", 4.0);
    for (const bool stated : {false, true}) {
      if (stated) Set("rope.freq_base_swa", 2e4);
      const ModelSpec spec = Spec();
      for (const LayerSpec& layer : spec.layers) {
        const AttentionSpec& attention = *layer.attention();
        if (attention.rope < 0) continue;
        EXPECT_EQ(spec.ropes[attention.rope].base, stated && attention.window > 0 ? 2e4 : 1e5);
        EXPECT_EQ(spec.ropes[attention.rope].scale, 4);
        EXPECT_EQ(spec.ropes[attention.rope].pairing, RopePairing::kHalves);
      }
      EXPECT_GT(spec.layers[0].attention()->window, 0);
    }
    Set("rope.scaling.type", std::string("yarn"));
    Set("rope.freq_base_swa", 0.5);
    EXPECT_THAT(Refusal(), HasSubstr("rope.freq_base_swa' must be > 1 for YaRN, got 0.5"));
  }
  // Without a window those layers turn as all do.
  Begin("afmoe", &DescribeAfmoe);
  Set("rope.freq_base_swa", 2e4);
  EXPECT_EQ(Spec().layers[0].attention()->rope, 0);
}

TEST_F(FamilyTest, SomeModelsHaveOneBaseWhateverTheirFilesSay) {
  for (const WindowedFamily& c : {WindowedFamily{"exaone4", &DescribeExaone4, 64},
                                  WindowedFamily{"exaone-moe", &DescribeExaoneMoe, 12},
                                  WindowedFamily{"cohere2", &DescribeCohere2, 12},
                                  WindowedFamily{"mellum", &DescribeMellum, 12},
                                  WindowedFamily{"olmo2", &DescribeOlmo2, 12}}) {
    SCOPED_TRACE(c.architecture);
    Begin(c.architecture, c.describe);
    Set("block_count", static_cast<uint64_t>(c.layers));
    Set("attention.layer_norm_epsilon", 1e-5);
    Set("attention.sliding_window", uint64_t{64});
    Set("rope.freq_base", 1e5);
    Set("rope.freq_base_swa", 2e4);
    const ModelSpec spec = Spec();
    ASSERT_EQ(spec.layers[0].attention()->window, 64);
    EXPECT_EQ(spec.ropes[spec.layers[0].attention()->rope].base, 1e5);
  }
}

// As the converter of EXAONE 4.5 and K-EXAONE writes them.
TEST_F(FamilyTest, WindowsNeedNotBeSaidOfBlocksThatAreNoLayers) {
  for (const WindowedFamily& c : {WindowedFamily{"exaone4", &DescribeExaone4, 64},
                                  WindowedFamily{"exaone-moe", &DescribeExaoneMoe, 12},
                                  WindowedFamily{"step35", &DescribeStep35, 12}}) {
    SCOPED_TRACE(c.architecture);
    Begin(c.architecture, c.describe);
    Set("block_count", static_cast<uint64_t>(c.layers + 2));
    Set("nextn_predict_layers", uint64_t{2});
    Set("attention.sliding_window", uint64_t{64});
    std::vector<bool> windowed(c.layers);
    std::vector<int64_t> windows(c.layers);
    for (int32_t i = 0; i < c.layers; i += 3) {
      windowed[i] = true;
      windows[i] = 64;
    }
    for (const int32_t said : {c.layers, c.layers + 2}) {
      windowed.resize(said);
      Set("attention.sliding_window_pattern", windowed);
      EXPECT_EQ(Windows(Spec()), windows);
    }
    for (const int32_t said : {c.layers - 1, c.layers + 1}) {
      windowed.resize(said);
      Set("attention.sliding_window_pattern", windowed);
      EXPECT_THAT(Refusal(), HasSubstr("must have a value for each of"));
    }
  }
}

TEST_F(FamilyTest, Mistral3GrowsItsQueriesBeyondTheOriginalContext) {
  Begin("mistral3", &DescribeMistral3);
  EXPECT_FALSE(Spec().layers[0].attention()->tempered);
  Set("attention.temperature_scale", 0.1);
  Set("rope.scaling.type", std::string("yarn"));
  Set("rope.scaling.factor", 16.0);
  Set("rope.scaling.original_context_length", uint64_t{128});
  const ModelSpec spec = Spec();
  EXPECT_TRUE(spec.layers[0].attention()->tempered);
  EXPECT_EQ(spec.temperature.length, 128);
  EXPECT_NEAR(spec.temperature.beta, 0.1, 1e-9);
  Set("rope.scaling.original_context_length", uint64_t{0});
  EXPECT_THAT(Refusal(), HasSubstr("original_context_length' must be 1 to"));
}

TEST_F(FamilyTest, Olmo3SlowsDownOnlyTheLayersThatSeeEverything) {
  Begin("olmo2", &DescribeOlmo2);
  EXPECT_EQ(Spec().ropes.size(), 1u);
  Set("attention.sliding_window", uint64_t{64});
  Set("rope.scaling.type", std::string("yarn"));
  Set("rope.scaling.factor", 8.0);
  const ModelSpec spec = Spec();
  ASSERT_EQ(spec.ropes.size(), 2u);
  EXPECT_TRUE(spec.ropes[0].yarn.has_value());
  EXPECT_FALSE(spec.ropes[1].yarn.has_value());
  EXPECT_EQ(Windows(spec), (std::vector<int64_t>{64, 64, 64, 0, 64, 64, 64, 0, 64, 64, 64, 0}));
  EXPECT_EQ(spec.layers[0].attention()->rope, 1);
  EXPECT_EQ(spec.layers[3].attention()->rope, 0);
  EXPECT_EQ(spec.layers[0].mixer_norm, nullptr);
}

TEST_F(FamilyTest, MuseGlimmerCapsItsLogitsUnlessTheFileSaysOtherwise) {
  Begin("muse-glimmer", &DescribeMuseGlimmer);
  Set("attention.sliding_window", uint64_t{64});
  Set("logit_scale", 0.5);
  EXPECT_EQ(Spec().logit_softcap, 30);
  Set("final_logit_softcapping", 20.0);
  EXPECT_EQ(Spec().logit_softcap, 20);
  Set("final_logit_softcapping", 0.0);
  EXPECT_EQ(Spec().logit_softcap, 0);
}

TEST_F(FamilyTest, Gemma2CapsItsScoresAndLogits) {
  Begin("gemma2", &DescribeGemma2);
  const ModelSpec spec = Spec();
  EXPECT_EQ(spec.layers[0].attention()->softcap, 50);
  EXPECT_EQ(spec.logit_softcap, 30);
  EXPECT_EQ(Windows(spec), std::vector<int64_t>(12, 0));  // 4096 tokens, more than there are
  Set("attention.sliding_window", uint64_t{8});
  EXPECT_EQ(Windows(Spec()), (std::vector<int64_t>{8, 0, 8, 0, 8, 0, 8, 0, 8, 0, 8, 0}));
}

TEST_F(FamilyTest, WindowsOfOthersAreRefused) {
  Begin("qwen3", &DescribeQwen3);
  Set("attention.sliding_window", uint64_t{4096});
  EXPECT_EQ(Windows(Spec()), std::vector<int64_t>(12, 0));
  Set("attention.sliding_window", uint64_t{100});
  EXPECT_THAT(Refusal(), HasSubstr("'qwen3.attention.sliding_window' = 100"));
}

TEST_F(FamilyTest, MaincoderNormsHeadsThatHaveTurned) {
  Begin("maincoder", &DescribeMaincoder);
  const ModelSpec spec = Spec();
  EXPECT_EQ(spec.ropes[0].pairing, RopePairing::kAdjacent);
  EXPECT_EQ(spec.layers[0].attention()->head_norm, HeadNorm::kEach);
  EXPECT_TRUE(spec.layers[0].attention()->norms_after_turning);
}

TEST_F(FamilyTest, OrionHasLayerNorms) {
  Begin("orion", &DescribeOrion);
  EXPECT_THAT(Refusal(), HasSubstr("orion.attention.layer_norm_epsilon"));
  Set("attention.layer_norm_epsilon", 1e-5);
  EXPECT_EQ(Spec().norm, NormKind::kLayer);
  EXPECT_EQ(Spec().ropes[0].pairing, RopePairing::kHalves);
}

}  // namespace
}  // namespace lm
