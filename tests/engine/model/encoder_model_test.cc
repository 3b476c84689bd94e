// What a file must have to be an encoder, and what it can then do: a small BERT whose parts are
// changed.
#include <gtest/gtest.h>

#include <cmath>
#include <initializer_list>
#include <string>

#include "tests/engine/model/small_model.h"

namespace lm {
namespace {

constexpr uint64_t kTokens = 259, kHidden = 32, kPositions = 64;

SmallModel SmallBert() {
  SmallModel model;
  const auto renamed = model.keys;
  for (const auto& [key, write] : renamed) {
    if (key.rfind("llama.", 0) != 0) continue;
    model.keys.erase(key);
    model.keys["bert." + key.substr(6)] = write;
  }
  model.Set("general.architecture", std::string("bert"));
  model.keys.erase("bert.attention.layer_norm_rms_epsilon");
  model.Set("bert.attention.layer_norm_epsilon", 1e-5f);
  model.Set("bert.attention.causal", false);
  for (const char* name : {"output_norm", "blk.0.attn_norm", "blk.0.ffn_norm", "blk.0.ffn_gate"}) {
    model.tensors.erase(std::string(name) + ".weight");
  }
  for (const char* name :
       {"token_embd_norm", "blk.0.attn_output_norm", "blk.0.layer_output_norm"}) {
    model.tensors[std::string(name) + ".weight"] = {{kHidden}};
    model.tensors[std::string(name) + ".bias"] = {{kHidden}};
  }
  model.tensors["position_embd.weight"] = {{kHidden, kPositions}};
  model.tensors["token_types.weight"] = {{kHidden, 2}};
  return model;
}

void ExpectEncoderRefused(const SmallModel& model, std::initializer_list<const char*> words) {
  auto loaded = model.Load();
  ASSERT_FALSE(loaded.ok());
  const std::string message(loaded.status().message());
  for (const char* word : words) {
    EXPECT_NE(message.find(word), std::string::npos) << "'" << word << "' in: " << message;
  }
}

TEST(EncoderModelTest, LoadsAndSaysWhatItIsFor) {
  SmallModel bert = SmallBert();
  bert.Set("bert.pooling_type", uint32_t{2});
  auto model = bert.Load({.kv_bytes = 1 << 20, .kv_type = DType::kI8});
  ASSERT_TRUE(model.ok()) << model.status();
  const ModelInfo& info = (*model)->info();
  EXPECT_FALSE(info.generates);
  EXPECT_FALSE(info.ranks);
  EXPECT_EQ(info.pooling, Pooling::kFirst);
  EXPECT_EQ(info.kv_type, DType::kF32);  // nothing is kept
  EXPECT_EQ(bert.Load({.device = "cpu", .kv_bytes = 1 << 20}).value()->info().kv_type, DType::kI16);
  EXPECT_TRUE((*model)->language_model().cache().whole_sequences);
  EXPECT_EQ(CheckRanks(info).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(std::string(CheckGenerates(info).message()).find("lm_embed"), std::string::npos);
}

TEST(EncoderModelTest, LayersShareTheMemoryOfKeysAndValues) {
  SmallModel bert = SmallBert();
  bert.Set("bert.block_count", uint32_t{2});
  const auto first = bert.tensors;
  for (const auto& [name, spec] : first) {
    if (name.rfind("blk.0.", 0) == 0) bert.tensors["blk.1." + name.substr(6)] = spec;
  }
  auto one = SmallBert().Load(), two = bert.Load();
  ASSERT_TRUE(one.ok() && two.ok()) << two.status();
  const auto block = [](auto& model) { return (*model)->language_model().cache().classes[0]; };
  EXPECT_EQ(block(one).block_bytes, block(two).block_bytes);
}

TEST(EncoderModelTest, EveryTensorHasItsShape) {
  const SmallModel bert = SmallBert();
  for (const auto& [name, spec] : bert.tensors) {
    SCOPED_TRACE(name);
    SmallModel without = bert;
    without.tensors.erase(name);
    const bool optional = name == "token_types.weight" || name.find(".bias") != std::string::npos;
    if (optional) {
      EXPECT_TRUE(without.Load().ok());
    } else {
      ExpectEncoderRefused(without, {name.c_str(), "is missing"});
    }
    SmallModel wider = bert;
    ++wider.tensors[name].dims[0];
    ExpectEncoderRefused(wider, {name.c_str(), "must be"});
  }
  SmallModel shorter = bert;
  shorter.tensors["position_embd.weight"] = {{kHidden, kPositions - 1}};
  ExpectEncoderRefused(shorter, {"position_embd.weight", "64 x 32", "63 x 32"});
  SmallModel more = bert;
  more.tensors["output_norm.weight"] = {{kHidden}};
  ExpectEncoderRefused(more, {"output_norm.weight", "not part of"});
}

TEST(EncoderModelTest, ARerankerHasAClassifier) {
  SmallModel bert = SmallBert();
  bert.Set("bert.pooling_type", uint32_t{4});
  ExpectEncoderRefused(bert, {"cls.output.weight", "is missing"});
  bert.tensors["cls.output.weight"] = {{kHidden, 1}};
  auto model = bert.Load();
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_TRUE((*model)->info().ranks);
  const auto scores =
      (*model)->language_model().ApplyHead(/*ranks=*/true, std::vector<float>(kHidden, 1));
  ASSERT_TRUE(scores.ok()) << scores.status();
  ASSERT_EQ(scores->size(), 1u);
  EXPECT_EQ((*scores)[0], 0.5f * kHidden);
  bert.tensors["cls.output.bias"] = {{2}};
  ExpectEncoderRefused(bert, {"cls.output.bias"});
  bert.tensors["cls.output.bias"] = {{1}};
  bert.tensors["cls.weight"] = {{kHidden, kHidden + 1}};
  ExpectEncoderRefused(bert, {"cls.weight", "32 x 32"});
}

// As converters write rerankers: without a word of what they are.
TEST(EncoderModelTest, AnEncoderWithOneLabelRanks) {
  SmallModel bert = SmallBert();
  bert.tensors["cls.output.weight"] = {{kHidden, 1}};
  const auto ranks = [&bert](ModelOptions options = {}) {
    options.kv_bytes = 1 << 20;
    const auto model = bert.Load(options);
    EXPECT_TRUE(model.ok()) << model.status();
    return model.ok() && (*model)->info().ranks;
  };
  EXPECT_TRUE(ranks());
  EXPECT_FALSE(ranks({.pooling = PoolingType::kMean}));
  bert.Set("bert.pooling_type", uint32_t{1});
  EXPECT_FALSE(ranks());
  EXPECT_TRUE(ranks({.pooling = PoolingType::kRank}));
  bert.keys.erase("bert.pooling_type");
  bert.tensors["cls.output.weight"] = {{kHidden, 3}};  // sentiments, say
  EXPECT_FALSE(ranks());
  EXPECT_TRUE(ranks({.pooling = PoolingType::kRank}));
  SmallModel llama;
  llama.tensors["cls.output.weight"] = {{kHidden, 1}};
  const auto writes = llama.Load();
  ASSERT_TRUE(writes.ok()) << writes.status();
  EXPECT_TRUE((*writes)->info().generates);
}

// jina-reranker-v1: tanh(w h + b), and no matrix in front of it.
TEST(EncoderModelTest, AClassifierMayBeOneRow) {
  SmallModel bert = SmallBert();
  bert.tensors["cls.weight"] = {{kHidden, 1}};
  bert.tensors["cls.bias"] = {{1}};
  auto model = bert.Load();
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_TRUE((*model)->info().ranks);
  const auto scores =
      (*model)->language_model().ApplyHead(/*ranks=*/true, std::vector<float>(kHidden, 0.02f));
  ASSERT_TRUE(scores.ok()) << scores.status();
  ASSERT_EQ(scores->size(), 1u);
  EXPECT_NEAR((*scores)[0], std::tanh(0.5 * 0.02 * kHidden + 0.5), 1e-6);
  bert.tensors["cls.bias"] = {{2}};
  ExpectEncoderRefused(bert, {"cls.bias"});
}

TEST(EncoderModelTest, WhatItCannotBeIsNamed) {
  SmallModel causal = SmallBert();
  causal.Set("bert.attention.causal", true);
  ExpectEncoderRefused(causal, {"bert.attention.causal", "not supported"});
  SmallModel pooling = SmallBert();
  pooling.Set("bert.pooling_type", uint32_t{5});
  ExpectEncoderRefused(pooling, {"bert.pooling_type", "5"});
}

// gte-Qwen2 and others: the blocks of a family that writes, but each token sees all of its text.
TEST(EncoderModelTest, AFamilyOfAttentionAloneIsOneWhereTheFileSaysSo) {
  SmallModel llama;
  llama.Set("llama.attention.causal", false);
  auto model = llama.Load();
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_FALSE((*model)->info().generates);
}

}  // namespace
}  // namespace lm
