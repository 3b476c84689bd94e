#include "engine/model/cache_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace lm {
namespace {

using testing::HasSubstr;

LayerSpec Attention(int64_t kv_heads, int64_t head_dim, int64_t window = 0) {
  LayerSpec layer;
  layer.mixer = AttentionSpec{.heads = kv_heads,
                              .kv_heads = kv_heads,
                              .key_dim = head_dim,
                              .value_dim = head_dim,
                              .window = window};
  return layer;
}

LayerSpec Recurrent() {
  LayerSpec layer;
  layer.mixer =
      DeltaNetSpec{.heads = 2, .key_heads = 1, .key_dim = 8, .value_dim = 8, .conv_width = 4};
  return layer;
}

// F16: a token's keys and values of one layer of 2 heads of 16.
constexpr int64_t kBlock = 2 * 2 * 16 * 2 * kKvBlockTokens;
constexpr int64_t kState = (3 * (2 * 8 + 16) + 2 * 8 * 8) * sizeof(float);

CacheSpec Plan(const ModelSpec& spec, int64_t bytes) {
  auto cache = PlanCache(spec, bytes, DType::kF16);
  EXPECT_TRUE(cache.ok()) << cache.status();
  return cache.ok() ? *cache : CacheSpec();
}

TEST(CacheSpecTest, EncodersHaveTheTypeThatTheirDevicesAreFastIn) {
  ModelSpec encoder, decoder;
  encoder.causal = false;
  encoder.layers = decoder.layers = {Attention(2, 16)};
  constexpr DType kAsked[] = {DType::kF16, DType::kI16, DType::kI8, DType::kF32};
  constexpr DType kOnCpus[] = {DType::kF32, DType::kI16, DType::kF32, DType::kF32};
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(KvTypeOf(encoder, /*on_gpu=*/false, kAsked[i]), kOnCpus[i]);
    EXPECT_EQ(KvTypeOf(encoder, /*on_gpu=*/true, kAsked[i]),
              kAsked[i] == DType::kF32 ? DType::kF32 : DType::kF16);
    for (const bool on_gpu : {false, true}) {
      EXPECT_EQ(KvTypeOf(decoder, on_gpu, kAsked[i]), kAsked[i]);
    }
  }
}

TEST(CacheSpecTest, LayersThatSeeEverythingAreOneClassWhateverTheirHeads) {
  ModelSpec spec;
  spec.context_length = 1000;
  spec.layers = {Attention(2, 16), Attention(4, 16), Attention(2, 16)};
  const CacheSpec cache = Plan(spec, 100 * 4 * kBlock);
  ASSERT_EQ(cache.shape.classes.size(), 1u);
  EXPECT_EQ(cache.class_of, (std::vector<int32_t>{0, 0, 0}));
  EXPECT_EQ(cache.shape.classes[0].block_bytes, 4 * kBlock);
  EXPECT_EQ(cache.shape.classes[0].num_blocks, 100);
  EXPECT_FALSE(cache.shape.recurrent());
  // More than 64 sequences of the whole context is of no use.
  EXPECT_EQ(Plan(spec, int64_t{1} << 40).shape.classes[0].num_blocks, 64 * 32);
  EXPECT_THAT(std::string(PlanCache(spec, 100, DType::kF16).status().message()),
              HasSubstr("kv_bytes = 100 holds no KV block: this model needs 16384 bytes"));
}

TEST(CacheSpecTest, AWindowedClassHasNoMoreThanItsWindows) {
  ModelSpec spec;
  spec.context_length = 100000;
  spec.layers = {Attention(2, 16, 64), Attention(2, 16), Attention(2, 16, 64)};
  CacheSpec cache = Plan(spec, 300 * kBlock);
  EXPECT_EQ(cache.class_of, (std::vector<int32_t>{1, 0, 1}));
  EXPECT_EQ(cache.shape.classes[1].window, 64);
  // A little memory is shared out alike; of much the windows take what 72 sequences can use.
  EXPECT_EQ(cache.shape.classes[0].num_blocks, 100);
  EXPECT_EQ(cache.shape.classes[1].num_blocks, 100);
  cache = Plan(spec, 10000 * kBlock);
  EXPECT_EQ(cache.shape.classes[1].num_blocks, 72 * (2 + 16 + 2));
  EXPECT_EQ(cache.shape.classes[0].num_blocks, 10000 - 2 * cache.shape.classes[1].num_blocks);
  EXPECT_LE(cache.shape.bytes(), 10000 * kBlock);
  // A window and two begun blocks are the least.
  EXPECT_EQ(Plan(spec, 9 * kBlock).shape.classes[1].num_blocks, 4);
  EXPECT_FALSE(PlanCache(spec, 8 * kBlock, DType::kF16).ok());
}

TEST(CacheSpecTest, StatesHaveHalfOfTheBudgetAndNoMoreThanTheyCanUse) {
  ModelSpec spec;
  spec.context_length = 100000;
  spec.layers = {Recurrent(), Attention(2, 16), Recurrent()};
  CacheSpec cache = Plan(spec, 20 * 2 * kState + 20 * kBlock);
  EXPECT_EQ(cache.class_of, (std::vector<int32_t>{-1, 0, -1}));
  EXPECT_EQ(cache.shape.state_bytes, 2 * kState);
  EXPECT_GE(cache.shape.num_states, 20);
  EXPECT_LE(cache.shape.bytes(), 20 * 2 * kState + 20 * kBlock);
  EXPECT_GT(cache.shape.bytes(), 20 * 2 * kState + 19 * kBlock);
  EXPECT_EQ(Plan(spec, int64_t{1} << 30).shape.num_states, 72 + 64);
  EXPECT_EQ(Plan(spec, 4 * kState + kBlock).shape.num_states, 2);
  EXPECT_THAT(std::string(PlanCache(spec, 4 * kState, DType::kF16).status().message()),
              HasSubstr("for two states"));
}

TEST(CacheSpecTest, ADeviceHasOneShareHoweverManyRoomsItHas) {
  ModelSpec spec;
  spec.context_length = 200000;
  spec.layers = {Attention(2, 16), Attention(2, 16), Attention(2, 16), Attention(2, 16)};
  auto blocks = [&spec](const std::vector<CacheRoom>& rooms) {
    const auto cache = PlanCacheIn(spec, rooms, DType::kF16);
    EXPECT_TRUE(cache.ok()) << cache.status();
    return cache.ok() ? cache->shape.classes[0].num_blocks : 0;
  };
  constexpr int64_t kFree = 2 * 100 * 4 * kBlock;
  EXPECT_EQ(blocks({{0, 4, kFree, {"cuda:0"}}}), 100);
  EXPECT_EQ(blocks({{0, 2, kFree, {"cuda:0"}}, {2, 4, kFree, {"cuda:1"}}}), 200);
  EXPECT_EQ(
      blocks({{0, 1, kFree, {"cuda:0"}}, {1, 3, 4 * kFree, {"cuda:1"}}, {3, 4, kFree, {"cuda:0"}}}),
      200);
  EXPECT_EQ(blocks({{0, 2, kFree, {"cuda:0"}}, {2, 4, kFree, {"cuda:0"}}}), 100);
  EXPECT_EQ(blocks({{0, 4, kFree, {"cuda:0", "cuda:1"}}}), 200);
  EXPECT_EQ(blocks({{0, 2, kFree, {"cuda:0", "cuda:1"}}, {2, 4, kFree, {"cuda:1"}}}), 133);
  // The host's memory is one.
  const int32_t host = blocks({{0, 4, -1, {"cpu"}}});
  EXPECT_EQ(blocks({{0, 2, -1, {"cpu"}}, {2, 4, -1, {"cpu"}}}), host);
  EXPECT_EQ(blocks({{0, 2, -1, {"cpu"}}, {2, 4, -1, {"reference"}}}), host);
  EXPECT_EQ(blocks({{0, 4, -1, {"cpu", "cpu"}}}), host);
}

TEST(CacheSpecTest, WithoutFullAttentionItsBlocksAreOnlyNumbers) {
  ModelSpec spec;
  spec.context_length = 1024;
  spec.layers = {Recurrent()};
  const CacheSpec cache = Plan(spec, 100 * kState);
  ASSERT_EQ(cache.shape.classes.size(), 1u);
  EXPECT_EQ(cache.shape.classes[0].block_bytes, 0);
  EXPECT_EQ(cache.shape.classes[0].num_blocks, 64 * 32);
  EXPECT_EQ(cache.shape.num_states, 50);
  // No budget bounds these; a header may say anything.
  for (const int64_t context : {1 << 20, 1 << 30, INT32_MAX}) {
    spec.context_length = context;
    EXPECT_EQ(Plan(spec, 100 * kState).shape.classes[0].num_blocks, 1 << 18) << context;
  }
}

}  // namespace
}  // namespace lm
