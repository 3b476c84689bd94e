// Our logits against llama.cpp's, recorded in tests/testdata/models, on every backend; and on "cpu"
// against our own, to the bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <numeric>
#include <optional>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/types/span.h"
#include "engine/base/digest.h"
#include "engine/model/model.h"
#include "tests/engine/model/golden_file.h"
#include "tests/engine/model/run_model.h"

namespace lm {
namespace {

struct Golden {
  const char* name;
  double rms;    // of the differences, relative to the spread of a row's logits
  double worst;  // the largest of them
  DType kv_type = DType::kF16;
};

// Float weights: the peer ran the same weights expanded to F32, so both sides only round
// differently. Quantised: both sides also round activations to 8 bits, in blocks of their own; the
// bounds are derived in tests/parity/compare_logits.py (two layers, and one layer for the K-quants'
// files).
constexpr Golden kFloat = {nullptr, 1e-4, 1e-3};
// Both keep keys and values as F32, too.
constexpr Golden kAllFloat = {nullptr, 2e-5, 3e-4, DType::kF32};
// The peer looks GELU up in a table of 16-bit floats.
constexpr Golden kGelu = {nullptr, 2e-3, 1.5e-2};
constexpr Golden kTwoLayers = {nullptr, 0.054, 0.32};
constexpr Golden kSixLayers = {nullptr, 0.094, 0.56};  // sqrt(3) times as far
constexpr Golden kOneLayer = {nullptr, 0.040, 0.24};

constexpr Golden Named(const char* name, Golden bounds) {
  bounds.name = name;
  return bounds;
}

constexpr Golden kGemma4E = Named("gemma4-e-f32", kGelu);

constexpr Golden kGolden[] = {
    Named("llama-spm-untied-f32", kFloat),
    Named("llama-rope-factors-f16", kFloat),
    Named("llama-linear-rope-f32", kFloat),
    Named("llama-yarn-f32", kFloat),
    Named("qwen2-bf16", kFloat),
    Named("qwen3-f32", kFloat),
    Named("qwen3-q8_0", kTwoLayers),
    Named("gemma3-f32", kGelu),
    Named("gemma3-q8_0", kSixLayers),
    Named("qwen35-f32", kFloat),
    Named("qwen35-q8_0", kSixLayers),
    Named("mixtral-f32", kFloat),
    Named("mistral3-f32", kFloat),
    Named("arcee-f32", kFloat),
    Named("phi3-f32", kFloat),
    Named("deepseek2-f32", kFloat),
    Named("deepseek2-dense-f32", kAllFloat),
    Named("mistral4-f32", kAllFloat),
    Named("qwen3next-f32", kFloat),
    Named("gpt-oss-f32", kFloat),
    Named("granitemoe-f32", kFloat),
    Named("granitehybrid-f32", kFloat),
    Named("lfm2moe-f32", kFloat),
    Named("nemotron_h_moe-f32", kFloat),
    Named("olmo3-f32", kFloat),
    Named("cohere2-f32", kFloat),
    Named("stablelm-12b-f32", kFloat),
    Named("gemma2-f32", kGelu),
    Named("gemma4-moe-f32", kGelu),
    Named("mamba2-f32", kAllFloat),
    Named("mamba-f32", kAllFloat),
    Named("jamba-f32", kAllFloat),
    Named("falcon-h1-f32", kAllFloat),
    Named("muse-glimmer-f32", kAllFloat),
    Named("llama4-f32", kAllFloat),
    Named("minicpm3-f32", kAllFloat),
    Named("qwen3vl-f32", kAllFloat),
    Named("qwen3next-old-f32", kAllFloat),
    Named("rwkv7-f32", kAllFloat),
    Named("rwkv6-f32", kAllFloat),
    Named("rwkv6qwen2-f32", kAllFloat),
    Named("deepseek4-f32", kAllFloat),
    Named("plamo2-f32", kAllFloat),
    Named("kimi-linear-f32", kAllFloat),
    Named("bailingmoe3-f32", kAllFloat),
    Named("step35-f32", kAllFloat),
    Named("laguna-f32", kAllFloat),
    Named("mimo2-f32", kAllFloat),
    Named("olmo-f32", kAllFloat),
    Named("chatglm-f32", kAllFloat),
    Named("deci-f32", kAllFloat),
    Named("hy_v3-f32", kAllFloat),
    Named("gemma3n-f32", kGelu),
    Named("gpt2-f32", kGelu),
    Named("gpt-oss-mxfp4", kTwoLayers),
    Named("llama-q8_0", kTwoLayers),
    Named("qwen2-q4_0", kTwoLayers),
    Named("llama-q4_1", kTwoLayers),
    Named("llama-q4_k_m", kOneLayer),
    Named("llama-q2_k", kOneLayer),
    Named("llama-q6_k", kOneLayer),
    Named("llama-iq4_xs", kOneLayer),
    kGemma4E,
};

std::vector<int32_t> GoldenTokens() {
  std::ifstream file(ModelPath("golden_tokens", ".txt"));
  std::string line;
  std::getline(file, line);
  std::vector<int32_t> tokens;
  for (absl::string_view id : absl::StrSplit(line, ',')) {
    tokens.emplace_back();
    EXPECT_TRUE(absl::SimpleAtoi(id, &tokens.back()));
  }
  return tokens;
}

// The digest of a model's logits on "cpu": one machine recorded it, and every other, whatever its
// processor, instruction set (LM_CPU) and C library, computes the same bits. Where arithmetic
// changes on purpose, LM_RECORD_BITS=FILE writes the lines of tests/testdata/models/cpu_bits.txt.
std::string RecordedBits(absl::string_view name) {
  std::ifstream file(ModelPath("cpu_bits", ".txt"));
  for (std::string model, digest; file >> model >> digest;) {
    if (model == name) return digest;
  }
  return "nothing";
}

void ExpectRecordedBits(absl::string_view name, const std::vector<float>& logits) {
  const std::string digest =
      DigestOf({reinterpret_cast<const char*>(logits.data()), logits.size() * sizeof(float)}).Hex();
  const char* path = std::getenv("LM_RECORD_BITS");
  if (path != nullptr) {
    std::ofstream(path, std::ios::app) << name << " " << digest << "\n";
  } else {
    EXPECT_EQ(digest, RecordedBits(name)) << "other bits than elsewhere, or than before";
  }
}

class GoldenLogitsTest : public testing::TestWithParam<std::tuple<Golden, std::string>> {};

TEST_P(GoldenLogitsTest, AgreeWithLlamaCpp) {
  const auto& [golden, device] = GetParam();
  auto model = Model::Load(
      ModelPath(golden.name, ".gguf"),
      {.device = device, .kv_bytes = 1 << 24, .kv_type = golden.kv_type, .least_split_bytes = 0});
  ASSERT_TRUE(model.ok()) << model.status();
  LanguageModel& language_model = (*model)->language_model();
  const size_t vocab = language_model.vocab_size();
  std::vector<int32_t> tokens = GoldenTokens();
  std::vector<float> expected = ReadFloats(ModelPath(golden.name, ".f32"));
  const size_t rows = expected.size() / vocab;  // the last ones
  ASSERT_EQ(rows, 24u);

  TestSequence sequence = MakeSequence(tokens, 0);
  std::vector<float> actual =
      Feed(language_model, {&sequence}, {static_cast<int32_t>(tokens.size())});
  if (absl::StartsWith(device, "cpu") && !absl::StrContains(device, "reference")) {
    ExpectRecordedBits(golden.name, actual);
  }

  double squares = 0;
  for (size_t row = 0; row < rows; ++row) {
    const float* want = &expected[row * vocab];
    const float* got = &actual[(tokens.size() - rows + row) * vocab];
    double mean = 0, variance = 0;
    for (size_t i = 0; i < vocab; ++i) mean += want[i] / vocab;
    for (size_t i = 0; i < vocab; ++i) variance += (want[i] - mean) * (want[i] - mean) / vocab;
    const double spread = std::sqrt(variance);
    for (size_t i = 0; i < vocab; ++i) {
      const double error = (got[i] - want[i]) / spread;
      squares += error * error;
      ASSERT_LE(std::abs(error), golden.worst)
          << "row " << row << ", logit " << i << ": " << got[i] << ", peer " << want[i];
    }
    const float* best = std::max_element(want, want + vocab);
    const float* ours = std::max_element(got, got + vocab);
    if (best - want != ours - got) {  // only ever a near tie
      EXPECT_LE((*best - want[ours - got]) / spread, 2 * golden.worst) << "row " << row;
    }
  }
  EXPECT_LE(std::sqrt(squares / static_cast<double>(expected.size())), golden.rms);
}

// Above both sides have keys and values as F16; by default those of a CPU are int16.
TEST(KvTypesTest, LogitsWithInt16AreAsNearToF32AsWithF16) {
  for (const char* name : {"llama-yarn-f32", "qwen3-f32", "gemma3-f32"}) {
    auto logits = [&](std::optional<DType> kv_type) {
      auto model = Model::Load(ModelPath(name, ".gguf"), {.kv_bytes = 1 << 24, .kv_type = kv_type});
      EXPECT_EQ((*model)->info().kv_type, kv_type.value_or(DType::kI16));
      const std::vector<int32_t> tokens = GoldenTokens();
      TestSequence sequence = MakeSequence(tokens, 0);
      return Feed((*model)->language_model(), {&sequence}, {static_cast<int32_t>(tokens.size())});
    };
    ExpectRecordedBits(absl::StrCat(name, "-int16"), logits(std::nullopt));
    const std::vector<float> exact = logits(DType::kF32);
    auto error = [&](std::optional<DType> kv_type) {
      const std::vector<float> got = logits(kv_type);
      double squares = 0;
      for (size_t i = 0; i < got.size(); ++i) squares += std::pow(double{got[i]} - exact[i], 2);
      return std::sqrt(squares);
    };
    const double f16 = error(DType::kF16), int16 = error(std::nullopt);
    EXPECT_GT(f16, 0);
    EXPECT_LT(int16, 1.5 * f16) << name;
  }
}

// Of all families: keys of int8 are mixed, and queries; values are not.
TEST(KvTypesTest, LogitsWithInt8AreThoseOfF32MoreOrLess) {
  for (const Golden& golden : kGolden) {
    auto logits = [&](DType kv_type) {
      auto model =
          Model::Load(ModelPath(golden.name, ".gguf"), {.kv_bytes = 1 << 24, .kv_type = kv_type});
      EXPECT_TRUE(model.ok()) << model.status();
      const std::vector<int32_t> tokens = GoldenTokens();
      TestSequence sequence = MakeSequence(tokens, 0);
      return Feed((*model)->language_model(), {&sequence}, {static_cast<int32_t>(tokens.size())});
    };
    const std::vector<float> exact = logits(DType::kF32), got = logits(DType::kI8);
    const double mean =
        std::accumulate(exact.begin(), exact.end(), 0.0) / static_cast<double>(exact.size());
    double differences = 0, spread = 0;
    for (size_t i = 0; i < exact.size(); ++i) {
      differences += std::pow(double{got[i]} - exact[i], 2);
      spread += std::pow(exact[i] - mean, 2);
    }
    EXPECT_LT(std::sqrt(differences / spread), 0.3) << golden.name;
  }
}

std::string TestName(const testing::TestParamInfo<GoldenLogitsTest::ParamType>& info) {
  return ModelAndDevice(std::get<0>(info.param).name, std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(All, GoldenLogitsTest,
                         testing::Combine(testing::ValuesIn(kGolden),
                                          testing::Values("reference", "cpu")),
                         TestName);

// Each layer on several devices, which have the bits of one.
INSTANTIATE_TEST_SUITE_P(TensorParallel, GoldenLogitsTest,
                         testing::Combine(testing::ValuesIn(kGolden),
                                          testing::Values("cpu+cpu", "cpu+cpu+cpu")),
                         TestName);

// The first 55 have two layers or more: one on the first device, the others on the second.
INSTANTIATE_TEST_SUITE_P(Shared, GoldenLogitsTest,
                         testing::Combine(testing::ValuesIn(absl::MakeConstSpan(kGolden, 55)),
                                          testing::Values("cpu,reference", "reference=1,cpu")),
                         TestName);

// The last three of its six layers read the keys and values of the second and third.
INSTANTIATE_TEST_SUITE_P(SharedKeys, GoldenLogitsTest,
                         testing::Combine(testing::Values(kGemma4E),
                                          testing::Values("reference=1,cpu")),
                         TestName);

TEST(GoldenModelTest, LayersThatShareKeysAreOnOneDevice) {
  const auto model = Model::Load(ModelPath(kGemma4E.name, ".gguf"),
                                 {.device = "cpu,reference", .kv_bytes = 1 << 24});
  ASSERT_FALSE(model.ok());
  EXPECT_THAT(std::string(model.status().message()),
              testing::HasSubstr("layer 3 reads the keys and values of layer 1"));
}

}  // namespace
}  // namespace lm
