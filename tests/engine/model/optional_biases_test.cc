// Families of models that have biases of q, k and v load files without them: to the bit as with
// biases that are 0.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/random.h"
#include "tests/engine/model/run_model.h"
#include "tests/engine/model/small_model.h"

namespace lm {
namespace {

SmallModel MakeModel(const std::string& architecture) {
  SmallModel model;
  const auto keys = std::exchange(model.keys, {});
  for (const auto& [key, write] : keys) {
    const bool own = absl::StartsWith(key, "llama.");
    model.keys[own ? architecture + key.substr(5) : key] = write;
  }
  model.Set("general.architecture", architecture);
  model.tensors["output.weight"] = {{32, 259}};
  if (architecture != "qwen2") {
    model.tensors["blk.0.post_attention_norm.weight"] = {{32}};
    model.tensors.erase("blk.0.ffn_norm.weight");
  }
  if (architecture == "gpt-oss") {
    model.Set("gpt-oss.expert_count", uint32_t{4});
    model.Set("gpt-oss.expert_used_count", uint32_t{2});
    for (const char* name : {"gate", "up", "down"}) {
      const auto dense = model.tensors.extract(absl::StrCat("blk.0.ffn_", name, ".weight"));
      auto dims = dense.mapped().dims;
      dims.push_back(4);
      model.tensors[absl::StrCat("blk.0.ffn_", name, "_exps.weight")] = {dims};
    }
    model.tensors["blk.0.ffn_gate_inp.weight"] = {{32, 4}};
    model.tensors["blk.0.attn_sinks.weight"] = {{4}};
  }
  model.fill = [](const std::string& name, uint64_t i) {
    if (absl::EndsWith(name, ".bias")) return 0.0f;
    return static_cast<float>(RandomUniform(std::hash<std::string>()(name), i)) - 0.5f;
  };
  return model;
}

std::vector<float> LogitsOf(const SmallModel& small) {
  auto model = small.Load();
  EXPECT_TRUE(model.ok()) << model.status();
  if (!model.ok()) return {};
  TestSequence sequence = MakeSequence({5, 70, 7, 200, 9, 100}, 0);
  return Feed((*model)->language_model(), {&sequence}, {6});
}

TEST(OptionalBiasesTest, NoneAreThoseThatAreZero) {
  for (const char* architecture : {"qwen2", "seed_oss", "gpt-oss"}) {
    SCOPED_TRACE(architecture);
    SmallModel model = MakeModel(architecture);
    const std::vector<float> without = LogitsOf(model);
    ASSERT_FALSE(without.empty());
    model.tensors["blk.0.attn_q.bias"] = {{32}};
    model.tensors["blk.0.attn_k.bias"] = {{16}};
    model.tensors["blk.0.attn_v.bias"] = {{16}};
    EXPECT_EQ(LogitsOf(model), without);
    model.tensors["blk.0.attn_q.bias"].value = 1;
    EXPECT_NE(LogitsOf(model), without);
  }
}

}  // namespace
}  // namespace lm
