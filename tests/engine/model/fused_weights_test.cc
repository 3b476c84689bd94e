// Files that have q, k and v as one tensor, made of those that have three: they are the same
// models, to the bit.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/gguf/gguf_file.h"
#include "engine/model/model.h"
#include "tests/engine/gguf/gguf_builder.h"
#include "tests/engine/model/golden_file.h"
#include "tests/engine/model/random_adapter.h"
#include "tests/engine/model/run_model.h"

namespace lm {
namespace {

// "blk.3.attn_q.weight" without its "q.weight"; empty of other tensors.
std::string PrefixOfQ(const std::string& name, const std::string& kind) {
  const std::string end = "attn_q." + kind;
  return absl::EndsWith(name, end) ? name.substr(0, name.size() - kind.size() - 2) : "";
}

// Writes a model's file anew: of each layer q, k and v are one tensor, and their biases where
// `one_bias`.
void WriteFused(const std::string& path, bool one_bias, const std::string& fused_path) {
  const auto gguf = GgufFile::Open(path).value();
  GgufBuilder builder;
  for (const auto& [key, value] : gguf->metadata().values()) {
    std::visit([&builder, &key = key](const auto& v) { builder.Add(key, v); }, value);
  }
  auto add = [&](const std::string& name, const std::vector<std::string>& from) {
    std::string bytes;
    std::vector<uint64_t> dims = gguf->FindTensor(from[0])->dims;
    dims.back() = 0;
    for (const std::string& part : from) {
      const TensorInfo& info = *gguf->FindTensor(part);
      const size_t at = bytes.size();
      bytes.resize(at + info.bytes);
      ASSERT_TRUE(gguf->ReadTensor(info, absl::MakeSpan(&bytes[at], info.bytes)).ok());
      dims.back() += info.dims.back();
    }
    builder.AddTensor(name, GgmlNumber(gguf->FindTensor(from[0])->dtype), dims, bytes);
  };
  for (const TensorInfo& info : gguf->tensors()) {
    std::string kind = "weight", prefix = PrefixOfQ(info.name, kind);
    if (prefix.empty() && one_bias) prefix = PrefixOfQ(info.name, kind = "bias");
    if (!prefix.empty()) {
      std::vector<std::string> parts;
      for (const char* part : {"q.", "k.", "v."}) parts.push_back(absl::StrCat(prefix, part, kind));
      add(absl::StrCat(prefix, "qkv.", kind), parts);
      continue;
    }
    bool is_in = false;
    for (const char* part : {"attn_k.", "attn_v."}) {
      is_in |= absl::EndsWith(info.name, absl::StrCat(part, "weight"));
      is_in |= one_bias && absl::EndsWith(info.name, absl::StrCat(part, "bias"));
    }
    if (!is_in) add(info.name, {info.name});
  }
  std::ofstream(fused_path, std::ios::binary) << builder.Build();
}

std::vector<float> LogitsOf(const std::string& path, std::vector<AdapterOption> lora = {}) {
  const bool adapted = !lora.empty();
  auto model =
      Model::Load(path, {.kv_bytes = 1 << 22, .kv_type = DType::kF32, .lora = std::move(lora)});
  EXPECT_TRUE(model.ok()) << model.status();
  if (!model.ok()) return {};
  TestSequence sequence = MakeSequence({5, 250, 17, 90, 3, 3, 201, 44, 8, 19, 150, 33}, 0);
  ModelStep step;
  Append(sequence, 12, (*model)->language_model(), &step);
  if (adapted) AppendAdapted(0, 12, {{.adapter = 0, .scale = 1}}, &step.adapted);
  step.logit_rows.resize(12);
  std::iota(step.logit_rows.begin(), step.logit_rows.end(), 0);
  return RunStep((*model)->language_model(), std::move(step)).logits;
}

class FusedWeightsTest : public testing::Test {
 protected:
  ~FusedWeightsTest() override {
    for (const std::string& path : paths_) std::filesystem::remove(path);
  }
  // A file that goes when the test ends.
  std::string Temp(const std::string& name) {
    paths_.push_back(absl::StrCat(testing::TempDir(), "/fused_weights_", name, ".gguf"));
    return paths_.back();
  }

 private:
  std::vector<std::string> paths_;
};

TEST_F(FusedWeightsTest, GiveTheSameLogits) {
  // A gate in q, biases, and neither.
  for (const char* name :
       {"qwen35-f32", "qwen3next-f32", "qwen35-q8_0", "qwen2-bf16", "qwen3-f32"}) {
    const std::string path = ModelPath(name, ".gguf"), fused = Temp(name);
    const std::vector<float> expected = LogitsOf(path);
    ASSERT_FALSE(expected.empty());
    for (const bool one_bias : {true, false}) {
      SCOPED_TRACE(absl::StrCat(name, one_bias ? ", one bias" : ""));
      WriteFused(path, one_bias, fused);
      EXPECT_EQ(LogitsOf(fused), expected);
    }
  }
}

TEST_F(FusedWeightsTest, AnAdapterIsItsSumInTheWeights) {
  const std::string fused = Temp("model"), lora = Temp("lora"), merged = Temp("merged");
  WriteFused(ModelPath("qwen35-f32", ".gguf"), /*one_bias=*/true, fused);
  const RandomAdapter adapter(fused);
  adapter.Write(lora);
  adapter.Merge(fused, /*scale=*/1, merged);
  const std::vector<float> got = LogitsOf(fused, {{.name = "a", .path = lora}});
  const std::vector<float> want = LogitsOf(merged), plain = LogitsOf(fused);
  ASSERT_EQ(got.size(), want.size());
  double error = 0, change = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    error += std::pow(double{got[i]} - want[i], 2);
    change += std::pow(double{plain[i]} - want[i], 2);
  }
  EXPECT_LT(error, 1e-6 * change);
}

}  // namespace
}  // namespace lm
