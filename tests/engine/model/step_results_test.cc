// What a step hands out: hidden states (what the head multiplies), logits and tokens, row for row.
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "engine/gguf/gguf_file.h"
#include "engine/model/model.h"
#include "tests/engine/model/run_model.h"
#include "tests/testdata.h"

namespace lm {
namespace {

constexpr char kModel[] = LM_TESTDATA "/models/llama-spm-untied-f32.gguf";

std::vector<int32_t> TokensUpTo(int count) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(3 + (i * 37) % 250);
  return tokens;
}

// The tokens [from, from + count) of a sequence; results for the given rows of that batch.
StepResults FeedFor(LanguageModel& model, TestSequence sequence, int32_t from, int32_t count,
                    const std::vector<int32_t>& logit_rows, const std::vector<int32_t>& hidden_rows,
                    const std::vector<SamplingRow>& samples = {}) {
  ModelStep step{.logit_rows = logit_rows, .samples = samples, .hidden_rows = hidden_rows};
  sequence.computed = from;
  Append(sequence, count, model, &step);
  return RunStep(model, std::move(step));
}

std::vector<float> Rows(const std::vector<float>& all, std::vector<int32_t> rows, int64_t width) {
  std::vector<float> some;
  for (int32_t row : rows) {
    some.insert(some.end(), all.begin() + row * width, all.begin() + (row + 1) * width);
  }
  return some;
}

class StepResultsTest : public testing::TestWithParam<const char*> {
 protected:
  StepResultsTest() {
    auto model =
        Model::Load(kModel, {.device = GetParam(), .kv_bytes = 1 << 24, .least_split_bytes = 0});
    EXPECT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
  }
  std::unique_ptr<Model> model_;
};

TEST_P(StepResultsTest, TimesTheHeadAreTheLogits) {
  LanguageModel& model = model_->language_model();
  const int64_t width = model.hidden_size(), vocab = model.vocab_size();
  const TestSequence sequence = MakeSequence(TokensUpTo(5), 0);
  const StepResults results = FeedFor(model, sequence, 0, 5, {1, 4}, {1, 4});

  auto gguf = GgufFile::Open(kModel);
  ASSERT_TRUE(gguf.ok()) << gguf.status();
  const TensorInfo* head = (*gguf)->FindTensor("output.weight");
  ASSERT_NE(head, nullptr);
  std::vector<float> w(vocab * width);
  ASSERT_TRUE((*gguf)
                  ->ReadTensor(*head, {reinterpret_cast<char*>(w.data()), w.size() * sizeof(float)})
                  .ok());
  for (int64_t row = 0; row < 2; ++row) {
    for (int64_t token = 0; token < vocab; ++token) {
      double sum = 0;
      for (int64_t i = 0; i < width; ++i) {
        sum += double{w[token * width + i]} * results.hidden[row * width + i];
      }
      ASSERT_NEAR(results.logits[row * vocab + token], sum, 1e-4) << row << ", " << token;
    }
  }
}

TEST_P(StepResultsTest, AnySubsetOfRowsInAnyChunks) {
  LanguageModel& model = model_->language_model();
  const int64_t width = model.hidden_size(), vocab = model.vocab_size();
  const TestSequence sequence = MakeSequence(TokensUpTo(70), 0);
  std::vector<int32_t> every(70);
  std::iota(every.begin(), every.end(), 0);
  const StepResults all = FeedFor(model, sequence, 0, 70, every, every);

  const TestSequence other = MakeSequence(TokensUpTo(70), 8);
  FeedFor(model, other, 0, 30, {}, {});
  const StepResults some = FeedFor(model, other, 30, 40, {3, 39}, {0, 3, 17});
  EXPECT_EQ(some.hidden, Rows(all.hidden, {30, 33, 47}, width));
  EXPECT_EQ(some.logits, Rows(all.logits, {33, 69}, vocab));
  const StepResults hidden_only = FeedFor(model, other, 30, 40, {}, {39});
  EXPECT_EQ(hidden_only.hidden, Rows(all.hidden, {69}, width));
  const StepResults apart = FeedFor(model, other, 30, 40, {5}, {6});
  EXPECT_EQ(apart.hidden, Rows(all.hidden, {36}, width));
  EXPECT_EQ(apart.logits, Rows(all.logits, {35}, vocab));
}

TEST_P(StepResultsTest, TokensArePickedFromTheLogitsOfTheirRows) {
  LanguageModel& model = model_->language_model();
  const int64_t vocab = model.vocab_size();
  const TestSequence sequence = MakeSequence(TokensUpTo(40), 0);
  std::vector<int32_t> every(40);
  std::iota(every.begin(), every.end(), 0);
  const StepResults all = FeedFor(model, sequence, 0, 40, every, {});
  const std::vector<uint64_t> allowed((vocab + 63) / 64, 0x1010101010101010);
  auto samples = [&](const std::vector<int32_t>& rows) {
    std::vector<SamplingRow> samples;
    for (int32_t row : rows) {
      samples.push_back({.row = row});
      if (row % 3 == 1) samples.back().allowed = allowed;
      if (row % 3 == 2) samples.back().options = {.temperature = 2, .seed = 5};
    }
    return samples;
  };
  auto picked = [&](const std::vector<int32_t>& rows) {
    std::vector<absl::StatusOr<int32_t>> tokens;
    for (const SamplingRow& sample : samples(rows)) {
      tokens.push_back(
          SampleToken(absl::MakeConstSpan(all.logits).subspan(sample.row * vocab, vocab), sample));
    }
    return tokens;
  };
  const std::vector<std::vector<int32_t>> cases[] = {
      // rows that are sampled, read, and whose hidden states are wanted
      {{39}, {}, {}},
      {{0, 1, 2, 20, 39}, {}, {}},
      {{4, 5, 6}, {5}, {}},
      {{4, 30}, {3, 4, 38}, {}},
      {{7, 8}, {8, 9}, {0, 8, 39}},
      {{}, {1}, {1}},
      {every, {0, 39}, every},
  };
  for (const auto& rows : cases) {
    SCOPED_TRACE(testing::PrintToString(rows));
    const StepResults results = FeedFor(model, sequence, 0, 40, rows[1], rows[2], samples(rows[0]));
    EXPECT_EQ(results.tokens, picked(rows[0]));
    EXPECT_EQ(results.logits, Rows(all.logits, rows[1], vocab));
    EXPECT_EQ(results.hidden.size(), rows[2].size() * model.hidden_size());
  }
}

INSTANTIATE_TEST_SUITE_P(All, StepResultsTest,
                         testing::Values("reference", "cpu", "cpu,reference", "cpu+cpu"));

}  // namespace
}  // namespace lm
