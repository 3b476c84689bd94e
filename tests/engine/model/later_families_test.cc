// What the families with states and streams of their own, and those of 2026, read from a file's
// keys.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/engine/model/family_fixture.h"

namespace lm {
namespace {

using testing::HasSubstr;

TEST_F(FamilyTest, Gemma3nCutsGatesAndSharesKeys) {
  Begin("gemma3n", &DescribeGemma3n);
  Set("block_count", uint64_t{25});
  Set("attention.sliding_window", uint64_t{128});
  ModelSpec spec = Spec();
  EXPECT_EQ(spec.streams, 4);
  EXPECT_EQ(spec.per_layer_input, 256);
  EXPECT_EQ(spec.logit_softcap, 30);
  EXPECT_FLOAT_EQ(spec.layers[9].feed_forward.sparsity, 1.6448534f);
  EXPECT_EQ(spec.layers[10].feed_forward.sparsity, 0);
  EXPECT_EQ(spec.layers[3].attention()->window, 128);
  EXPECT_EQ(spec.layers[4].attention()->window, 0);
  EXPECT_EQ(spec.layers[19].attention()->kv_source, -1);
  EXPECT_EQ(spec.layers[20].attention()->kv_source, 18);
  EXPECT_EQ(spec.layers[24].attention()->kv_source, 19);
  std::vector<double> scales(25, -INFINITY);
  scales[24] = 1.5;
  Set("activation_sparsity_scale", scales);
  spec = Spec();
  EXPECT_EQ(spec.layers[0].feed_forward.sparsity, 0);
  EXPECT_EQ(spec.layers[24].feed_forward.sparsity, 1.5f);
  scales[3] = NAN;
  Set("activation_sparsity_scale", scales);
  EXPECT_THAT(Refusal(), HasSubstr("'gemma3n.activation_sparsity_scale' of layer 3"));
  Set("activation_sparsity_scale", std::vector<double>(24, 1.0));
  EXPECT_THAT(Refusal(), HasSubstr("must have a value for each of 25 layers, got 24"));
  Set("activation_sparsity_scale", std::vector<double>(25, 1.0));
  Set("altup.active_idx", uint64_t{1});
  EXPECT_THAT(Refusal(), HasSubstr("gemma3n.altup.active_idx"));
}

TEST_F(FamilyTest, Rwkv7HasTimeMixingInEveryLayer) {
  Begin("rwkv7", &DescribeRwkv7);
  Set("attention.layer_norm_epsilon", 1e-5);
  Set("attention.head_count", uint64_t{0});
  Set("attention.head_count_kv", uint64_t{0});
  Set("wkv.head_size", uint64_t{16});
  Set("attention.decay_lora_rank", uint64_t{6});
  Set("attention.iclr_lora_rank", uint64_t{7});
  Set("attention.value_residual_mix_lora_rank", uint64_t{5});
  const ModelSpec spec = Spec();
  ASSERT_NE(spec.layers[0].rwkv(), nullptr);
  EXPECT_EQ(spec.layers[0].rwkv()->heads, 4);
  EXPECT_TRUE(spec.layers[0].rwkv()->first);
  EXPECT_FALSE(spec.layers[1].rwkv()->first);
  EXPECT_EQ(StatesOf(spec.layers[1]).conv, 2 * 64);
  EXPECT_EQ(StatesOf(spec.layers[1]).rule, 4 * 16 * 16);
  Set("wkv.head_size", uint64_t{24});
  EXPECT_THAT(Refusal(), HasSubstr("'rwkv7.wkv.head_size' = 24 does not divide"));
  Set("wkv.head_size", uint64_t{16});
  Set("attention.head_count", uint64_t{4});
  EXPECT_THAT(Refusal(), HasSubstr("rwkv7.attention.head_count"));
}

TEST_F(FamilyTest, Rwkv6HalvesItsStreamNowAndThen) {
  Begin("rwkv6", &DescribeRwkv6);
  Set("attention.layer_norm_epsilon", 1e-5);
  Set("attention.head_count", uint64_t{0});
  Set("attention.head_count_kv", uint64_t{0});
  Set("wkv.head_size", uint64_t{16});
  Set("time_mix_extra_dim", uint64_t{8});
  EXPECT_THAT(Refusal(), HasSubstr("rwkv6.time_decay_extra_dim"));
  Set("time_decay_extra_dim", uint64_t{12});
  Set("rescale_every_n_layers", uint64_t{6});
  const ModelSpec spec = Spec();
  ASSERT_NE(spec.layers[1].rwkv(), nullptr);
  EXPECT_TRUE(spec.layers[1].rwkv()->is_6());
  EXPECT_EQ(StatesOf(spec.layers[1]).conv, 5 * 64);
  for (int i = 0; i < 12; ++i) EXPECT_EQ(spec.layers[i].output_factor, i % 6 == 5 ? 0.5f : 1) << i;
  Set("time_mix_extra_dim", uint64_t{0});
  EXPECT_THAT(Refusal(), HasSubstr("'rwkv6.time_mix_extra_dim' must be 1 to"));
}

TEST_F(FamilyTest, Rwkv6Qwen2SharesKeysAndValuesAmongHeads) {
  Begin("rwkv6qwen2", &DescribeRwkv6Qwen2);
  Set("attention.head_count", uint64_t{0});
  Set("wkv.head_size", uint64_t{16});
  Set("time_mix_extra_dim", uint64_t{8});
  Set("time_decay_extra_dim", uint64_t{12});
  Set("token_shift_count", uint64_t{1});
  const ModelSpec spec = Spec();
  ASSERT_NE(spec.layers[1].rwkv(), nullptr);
  EXPECT_EQ(spec.layers[1].rwkv()->kv_cols(), 2 * 16);
  EXPECT_EQ(StatesOf(spec.layers[1]).conv, 64);
  EXPECT_STREQ(spec.layers[1].feed_forward_norm, "ffn_norm");
  Set("attention.head_count_kv", uint64_t{3});
  EXPECT_THAT(Refusal(), HasSubstr("'rwkv6qwen2.attention.head_count_kv' = 3 does not divide"));
  Set("attention.head_count_kv", uint64_t{0});
  EXPECT_EQ(Spec().layers[0].rwkv()->kv_cols(), 64);
}

TEST_F(FamilyTest, DeepSeek4CompressesWhatIsFar) {
  Begin("deepseek4", &DescribeDeepSeek4);
  Set("attention.head_count_kv", uint64_t{1});
  Set("attention.key_length", uint64_t{48});
  Set("attention.q_lora_rank", uint64_t{24});
  Set("attention.sliding_window", uint64_t{16});
  Set("attention.output_group_count", uint64_t{2});
  Set("attention.output_lora_rank", uint64_t{20});
  Set("attention.indexer.head_count", uint64_t{3});
  Set("attention.indexer.key_length", uint64_t{32});
  Set("attention.indexer.top_k", uint64_t{7});
  Set("attention.compress_rope_freq_base", 40000.0);
  std::vector<int64_t> ratios(13, 128);  // one more than there are layers
  for (int i = 0; i < 12; i += 2) ratios[i] = 4;
  ratios[11] = 0;
  Set("attention.compress_ratios", ratios);
  Set("rope.dimension_count", uint64_t{16});
  Set("rope.scaling.type", std::string("yarn"));
  Set("rope.scaling.factor", 16.0);
  Set("hyper_connection.count", uint64_t{4});
  Set("hyper_connection.sinkhorn_iterations", uint64_t{20});
  Set("hyper_connection.epsilon", 1e-6);
  Set("hash_layer_count", uint64_t{3});
  Set("expert_count", uint64_t{8});
  Set("expert_used_count", uint64_t{2});
  Set("expert_feed_forward_length", uint64_t{40});
  Set("expert_shared_count", uint64_t{1});
  Set("swiglu_clamp_exp", std::vector<double>(12, 10.0));
  const ModelSpec spec = Spec();
  EXPECT_EQ(spec.streams, 4);
  EXPECT_EQ(spec.hyper->iterations, 20);
  const AttentionSpec& indexed = *spec.layers[0].attention();
  EXPECT_EQ(indexed.compressed->most, 7);
  EXPECT_EQ(indexed.compressed->index_heads, 3);
  EXPECT_EQ(StatesOf(spec.layers[0]).conv, 9 * 48);
  EXPECT_EQ(StatesOf(spec.layers[0]).rule, 9 * 32);
  EXPECT_EQ(MixerInputCols(spec.layers[0]), 24 + 48 + 4 * 48 + 4 * 32 + 3);
  EXPECT_EQ(MixerOutputCols(spec.layers[0]), 2 * 20);
  const AttentionSpec& wide = *spec.layers[1].attention();
  EXPECT_EQ(wide.compressed->every, 128);
  EXPECT_EQ(StatesOf(spec.layers[1]).conv, 3 * 48);
  EXPECT_EQ(StatesOf(spec.layers[1]).rule, 0);
  EXPECT_EQ(StatesOf(spec.layers[11]).bytes(), 0);
  // Those that pool turn by the scaled rope, the others by the plain one.
  EXPECT_EQ(spec.ropes[wide.rope].base, 40000);
  EXPECT_EQ(spec.ropes[wide.rope].scale, 16);
  EXPECT_EQ(spec.ropes[wide.rope].magnitude, 1);
  EXPECT_EQ(spec.ropes[wide.compressed->pooled_rope].behind, 127);
  EXPECT_TRUE(spec.ropes[wide.compressed->back_rope].back);
  const AttentionSpec& plain = *spec.layers[11].attention();
  EXPECT_EQ(spec.ropes[plain.rope].base, 10000);
  EXPECT_EQ(spec.ropes[plain.rope].scale, 1);
  EXPECT_TRUE(spec.layers[2].feed_forward.experts->by_token);
  EXPECT_FALSE(spec.layers[3].feed_forward.experts->by_token);
  EXPECT_EQ(spec.layers[3].feed_forward.limit, 10);  // as the experts'
  ratios[5] = 8;
  Set("attention.compress_ratios", ratios);
  EXPECT_THAT(Refusal(), HasSubstr("compression ratio of 0, 4 or 128, got 8"));
  ratios.resize(11);
  Set("attention.compress_ratios", ratios);
  EXPECT_THAT(Refusal(), HasSubstr("must have 12 values or more"));
}

TEST_F(FamilyTest, Plamo2HasStateSpacesInHeads) {
  Begin("plamo2", &DescribePlamo2);
  std::vector<uint64_t> heads(12, 4), kv_heads(12, 2);
  for (int i = 0; i < 12; i += 2) heads[i] = kv_heads[i] = 0;
  Set("attention.head_count", heads);
  Set("attention.head_count_kv", kv_heads);
  Set("attention.key_length", uint64_t{32});
  Set("ssm.conv_kernel", uint64_t{4});
  Set("ssm.state_size", uint64_t{8});
  Set("ssm.inner_size", uint64_t{48});
  Set("ssm.time_step_rank", uint64_t{6});
  Set("ssm.group_count", uint64_t{0});
  const ModelSpec spec = Spec();
  ASSERT_NE(spec.layers[0].selective(), nullptr);
  EXPECT_EQ(spec.layers[0].selective()->head_dim, 8);
  EXPECT_EQ(spec.layers[0].selective()->heads(), 6);
  EXPECT_EQ(spec.layers[0].selective()->step_rank, 64);
  ASSERT_NE(spec.layers[1].attention(), nullptr);
  EXPECT_EQ(spec.layers[1].attention()->heads, 4);
  EXPECT_EQ(spec.layers[1].attention()->head_norm, HeadNorm::kOwnGain);
  Set("ssm.time_step_rank", uint64_t{7});
  EXPECT_THAT(Refusal(), HasSubstr("'plamo2.ssm.time_step_rank' = 7 does not divide"));
  Set("ssm.time_step_rank", uint64_t{6});
  Set("ssm.group_count", uint64_t{2});
  EXPECT_THAT(Refusal(), HasSubstr("plamo2.ssm.group_count"));
  Set("ssm.group_count", uint64_t{0});
  kv_heads[0] = 2;  // without heads of queries
  Set("attention.head_count_kv", kv_heads);
  EXPECT_THAT(Refusal(), HasSubstr("does not divide"));
  Set("attention.head_count", std::vector<uint64_t>(12, 0));
  EXPECT_THAT(Refusal(), HasSubstr("'plamo2.attention.head_count' must be 1 or more, got 0"));
}

TEST_F(FamilyTest, BailingMoe3HasBoundedDecaysAndLimits) {
  Begin("bailingmoe3", &DescribeBailingMoe3);
  Set("attention.head_count_kv", std::vector<uint64_t>{0, 0, 1, 0, 0, 1, 0, 0, 1, 0, 0, 1});
  Set("attention.key_length", uint64_t{48});
  Set("attention.key_length_mla", uint64_t{40});
  Set("attention.value_length_mla", uint64_t{24});
  Set("attention.kv_lora_rank", uint64_t{32});
  Set("rope.dimension_count", uint64_t{16});
  Set("ssm.conv_kernel", uint64_t{4});
  Set("kda.head_dim", uint64_t{8});
  EXPECT_THAT(Refusal(), HasSubstr("bailingmoe3.kda.gate_lower_bound"));
  Set("kda.gate_lower_bound", -5.0);
  std::vector<double> limits(12);
  limits[2] = 0.5;
  Set("swiglu_clamp_shexp", limits);
  const ModelSpec spec = Spec();
  ASSERT_NE(spec.layers[0].kimi_delta(), nullptr);
  EXPECT_EQ(spec.layers[0].kimi_delta()->bound, -5);
  EXPECT_FALSE(spec.layers[0].kimi_delta()->low_rank);
  EXPECT_EQ(MixerInputCols(spec.layers[0]), 5 * 4 * 8 + 4);
  const AttentionSpec& attention = *spec.layers[2].attention();
  EXPECT_TRUE(attention.gate_of_heads);
  EXPECT_EQ(attention.gate_cols(), 4);
  EXPECT_EQ(attention.latent->nope, 24);
  EXPECT_EQ(spec.layers[2].feed_forward.limit, 0.5f);
  EXPECT_EQ(spec.layers[1].feed_forward.limit, 0);
  limits[2] = -0.5;
  Set("swiglu_clamp_shexp", limits);
  EXPECT_THAT(Refusal(), HasSubstr("must be finite numbers >= 0, got -0.5"));
  Set("swiglu_clamp_shexp", std::vector<double>(12));
  Set("kda.gate_lower_bound", 0.0);
  EXPECT_THAT(Refusal(), HasSubstr("'bailingmoe3.kda.gate_lower_bound' = 0 must be < 0"));
}

TEST_F(FamilyTest, Step35HasHeadsOfItsOwnBehindWindows) {
  Begin("step35", &DescribeStep35);
  EXPECT_THAT(Refusal(), HasSubstr("step35.attention.sliding_window"));
  Set("attention.sliding_window", uint64_t{128});
  EXPECT_THAT(Refusal(), HasSubstr("step35.attention.sliding_window_pattern"));
  std::vector<bool> windowed(12, true);
  std::vector<uint64_t> heads(12, 6), kv_heads(12, 3);
  windowed[0] = false;
  heads[0] = 4;
  kv_heads[0] = 2;
  Set("attention.sliding_window_pattern", windowed);
  Set("attention.head_count", heads);
  Set("attention.head_count_kv", kv_heads);
  Set("rope.freq_base_swa", 500.0);
  const ModelSpec spec = Spec();
  EXPECT_EQ(spec.layers[0].attention()->heads, 4);
  EXPECT_EQ(spec.layers[1].attention()->heads, 6);
  EXPECT_EQ(spec.layers[1].attention()->kv_heads, 3);
  EXPECT_EQ(spec.ropes[0].dim, 8);
  EXPECT_EQ(spec.ropes[0].num_factors, 8);
  EXPECT_EQ(spec.ropes[1].dim, 16);
  EXPECT_EQ(spec.ropes[1].base, 500);
  EXPECT_EQ(Windows(spec)[0], 0);
  EXPECT_EQ(Windows(spec)[1], 128);
  heads[5] = 5;
  Set("attention.head_count", heads);
  EXPECT_THAT(Refusal(), HasSubstr("does not divide"));
}

}  // namespace
}  // namespace lm
