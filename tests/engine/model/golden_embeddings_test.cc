// Our embeddings and scores against llama.cpp's, recorded in tests/testdata/models, on every
// backend.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <tuple>

#include "engine/model/model.h"
#include "tests/engine/model/golden_file.h"
#include "tests/engine/model/run_model.h"

namespace lm {
namespace {

// The largest difference, relative to the rms of the peer's numbers. It looks GELU up in a table of
// 16-bit floats.
constexpr double kSilu = 1e-4;
constexpr double kEmbeddingGelu = 1e-2;

struct GoldenEmbedding {
  const char* name;
  double bound;
};
constexpr GoldenEmbedding kGoldenEmbeddings[] = {
    {"bert-f32", kEmbeddingGelu},
    {"bert-rerank-f32", kEmbeddingGelu},
    {"nomic-bert-f32", kSilu},
    {"nomic-bert-moe-f32", kEmbeddingGelu},
    {"jina-bert-v2-f32", kEmbeddingGelu},
    {"modern-bert-f32", kEmbeddingGelu},
    {"modern-bert-rerank-f32", kEmbeddingGelu},
    {"gemma-embedding-f32", kEmbeddingGelu},
    {"eurobert-f32", kSilu},
    {"qwen3-rerank-f32", kSilu},
};

// The texts that the peer was given: of 1, 17 and 60 tokens.
std::vector<int32_t> Text(int size) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < size; ++i) tokens.push_back(5 + (7 * i + 13 * size) % 290);
  return tokens;
}
constexpr int kSizes[] = {1, 17, 60};

// All texts in one step, each with its blocks; what the model makes of each, one behind the other.
std::vector<float> EmbedAll(Model& model, const std::vector<std::vector<int32_t>>& texts) {
  LanguageModel& language_model = model.language_model();
  const ModelInfo& info = model.info();
  const Pooling pooling = info.pooling.value_or(Pooling::kMean);
  ModelStep step;
  std::vector<int64_t> rows;  // of each text, whose hidden states are pooled
  int32_t block = 0;
  for (const std::vector<int32_t>& text : texts) {
    const int32_t begin = static_cast<int32_t>(step.tables.tokens.size());
    const int32_t size = static_cast<int32_t>(text.size());
    const TestSequence sequence = MakeSequence(text, block);
    block += BlocksFor(size);
    Append(sequence, size, language_model, &step);
    rows.push_back(pooling == Pooling::kMean ? size : 1);
    for (int32_t i = 0; i < rows.back(); ++i) {
      step.hidden_rows.push_back(begin + (pooling == Pooling::kLast ? size - 1 : i));
    }
  }
  const StepResults results = RunStep(language_model, std::move(step));
  const size_t width = language_model.hidden_size();
  std::vector<float> made;
  const float* row = results.hidden.data();
  for (const int64_t count : rows) {
    std::vector<double> sums(width);
    for (int64_t i = 0; i < count; ++i, row += width) {
      for (size_t j = 0; j < width; ++j) sums[j] += row[j];
    }
    std::vector<float> pooled;
    for (double sum : sums) pooled.push_back(static_cast<float>(sum / static_cast<double>(count)));
    const auto out = language_model.ApplyHead(info.ranks, pooled);
    EXPECT_TRUE(out.ok()) << out.status();
    if (out.ok()) made.insert(made.end(), out->begin(), out->end());
  }
  return made;
}

class GoldenEmbeddingsTest
    : public testing::TestWithParam<std::tuple<GoldenEmbedding, std::string>> {};

// With keys and values of int16 vectors are so far away, in units of their rms.
constexpr double kInt16Bound = 0.012;

void ExpectGolden(const GoldenEmbedding& golden, const std::string& device, DType kv_type) {
  SCOPED_TRACE(Traits(kv_type).name);
  auto model = Model::Load(
      ModelPath(golden.name, ".gguf"),
      {.device = device, .kv_bytes = 1 << 24, .kv_type = kv_type, .least_split_bytes = 0});
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->info().kv_type, kv_type);
  EXPECT_FALSE((*model)->info().generates);
  const std::vector<float> expected = ReadFloats(ModelPath(golden.name, ".f32"));
  std::vector<std::vector<int32_t>> texts;
  for (int size : kSizes) texts.push_back(Text(size));
  const std::vector<float> actual = EmbedAll(**model, texts);
  ASSERT_EQ(actual.size(), expected.size());
  double squares = 0;
  for (float want : expected) squares += double{want} * want;
  const double rms = std::sqrt(squares / static_cast<double>(expected.size()));
  for (size_t i = 0; i < expected.size(); ++i) {
    const double bound = kv_type == DType::kI16 ? kInt16Bound : golden.bound;
    EXPECT_NEAR(actual[i], expected[i], bound * rms) << i;
  }
  std::vector<float> alone;
  for (const std::vector<int32_t>& text : texts) {
    const std::vector<float> one = EmbedAll(**model, {text});
    alone.insert(alone.end(), one.begin(), one.end());
  }
  EXPECT_EQ(alone, actual);
}

TEST_P(GoldenEmbeddingsTest, AgreeWithLlamaCppTogetherAndAlone) {
  const auto& [golden, device] = GetParam();
  ExpectGolden(golden, device, DType::kF32);
  if (device.find("cuda") == device.npos) ExpectGolden(golden, device, DType::kI16);
}

std::string EmbeddingTestName(const testing::TestParamInfo<GoldenEmbeddingsTest::ParamType>& info) {
  return ModelAndDevice(std::get<0>(info.param).name, std::get<1>(info.param));
}

// Converters do not write the key for BertForSequenceClassification and its like.
TEST(GoldenScoresTest, RerankersThatDoNotSayItScoreTheSame) {
  const std::vector<std::vector<int32_t>> texts = {Text(17), Text(60)};
  for (const std::string architecture : {"bert", "modern-bert"}) {
    const std::string path = ModelPath(architecture + "-rerank-f32", ".gguf");
    std::ifstream whole(path, std::ios::binary);
    std::string bytes((std::istreambuf_iterator<char>(whole)), {});
    const size_t key = bytes.find(architecture + ".pooling_type");
    ASSERT_NE(key, bytes.npos);
    bytes.replace(key, architecture.size(), architecture.size(), 'x');  // of another architecture
    const std::string without = testing::TempDir() + "/" + architecture + "-without.gguf";
    std::ofstream(without, std::ios::binary) << bytes;
    const ModelOptions options = {.kv_bytes = 1 << 24, .kv_type = DType::kF32};
    auto said = Model::Load(path, options), unsaid = Model::Load(without, options);
    std::filesystem::remove(without);
    ASSERT_TRUE(said.ok() && unsaid.ok()) << unsaid.status();
    EXPECT_TRUE(CheckRanks((*unsaid)->info()).ok());
    EXPECT_EQ(EmbedAll(**unsaid, texts), EmbedAll(**said, texts));
  }
}

INSTANTIATE_TEST_SUITE_P(All, GoldenEmbeddingsTest,
                         testing::Combine(testing::ValuesIn(kGoldenEmbeddings),
                                          testing::Values("reference", "cpu", "reference=1,cpu",
                                                          "cpu+cpu")),
                         EmbeddingTestName);

}  // namespace
}  // namespace lm
