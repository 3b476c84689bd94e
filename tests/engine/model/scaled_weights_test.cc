// X.scale beside X.weight: a model whose weights are divided by powers of two, and have these as
// scales, is the model that it was, to the bit.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/random.h"
#include "tests/engine/model/run_model.h"
#include "tests/engine/model/small_model.h"

namespace lm {
namespace {

constexpr uint64_t kExperts = 4;

SmallModel MakeModel(bool experts) {
  SmallModel model;
  if (experts) {
    model.Set("llama.expert_count", uint32_t{kExperts});
    model.Set("llama.expert_used_count", uint32_t{2});
    for (const char* name : {"gate", "up", "down"}) {
      const auto dense = model.tensors.extract(absl::StrCat("blk.0.ffn_", name, ".weight"));
      auto dims = dense.mapped().dims;
      dims.push_back(kExperts);
      model.tensors[absl::StrCat("blk.0.ffn_", name, "_exps.weight")] = {dims};
    }
    model.tensors["blk.0.ffn_gate_inp.weight"] = {{32, kExperts}};
  }
  model.tensors["output.weight"] = {{32, 259}};
  model.fill = [](const std::string& name, uint64_t i) {
    return static_cast<float>(RandomUniform(std::hash<std::string>()(name), i)) - 0.5f;
  };
  return model;
}

// Scale `index` of a tensor with that prefix.
float ScaleOf(const std::string& prefix, uint64_t index) {
  return std::exp2(static_cast<float>((prefix.size() + 3 * index) % 7) - 3.0f);
}

SmallModel WithScales(SmallModel model) {
  const auto fill = model.fill;
  const auto tensors = model.tensors;
  std::set<std::string> scaled;
  for (const auto& [name, spec] : tensors) {
    const std::string prefix = name.substr(0, name.size() - std::string(".weight").size());
    if (spec.dims.size() < 2 || prefix == "token_embd" || absl::EndsWith(prefix, "gate_inp")) {
      continue;
    }
    scaled.insert(prefix);
    model.tensors[prefix + ".scale"] = {{spec.dims.size() == 3 ? kExperts : 1}};
    model.tensors[prefix + ".input_scale"] = {{1}};
  }
  model.fill = [=](const std::string& name, uint64_t i) {
    const std::string prefix = name.substr(0, name.rfind('.'));
    if (scaled.count(prefix) == 0) return fill(name, i);
    if (absl::EndsWith(name, ".scale")) return ScaleOf(prefix, i);
    if (absl::EndsWith(name, ".input_scale")) return 123.0f;
    const auto& dims = tensors.at(name).dims;
    return fill(name, i) / ScaleOf(prefix, dims.size() == 3 ? i / (dims[0] * dims[1]) : 0);
  };
  return model;
}

std::vector<float> ScaledLogits(const SmallModel& small) {
  auto model = small.Load();
  EXPECT_TRUE(model.ok()) << model.status();
  if (!model.ok()) return {};
  TestSequence sequence = MakeSequence({5, 70, 7, 200, 9, 100}, 0);
  return Feed((*model)->language_model(), {&sequence}, {6});
}

TEST(ScaledWeightsTest, PowersOfTwoTakenFromWeightsComeBackAsScales) {
  for (bool experts : {false, true}) {
    const SmallModel model = MakeModel(experts);
    const std::vector<float> wanted = ScaledLogits(model);
    ASSERT_EQ(wanted.size(), 6u * 259);
    EXPECT_EQ(ScaledLogits(WithScales(model)), wanted) << (experts ? "experts" : "dense");
  }
}

TEST(ScaledWeightsTest, AScaleOfAnotherSizeIsRefused) {
  SmallModel model = MakeModel(/*experts=*/true);
  model.tensors["blk.0.ffn_up_exps.scale"] = {{kExperts + 1}};
  const auto loaded = model.Load();
  ASSERT_FALSE(loaded.ok());
  EXPECT_TRUE(absl::StrContains(loaded.status().message(), "blk.0.ffn_up_exps.scale"))
      << loaded.status();
}

}  // namespace
}  // namespace lm
