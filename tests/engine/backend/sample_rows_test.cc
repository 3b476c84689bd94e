// Backend::Sample beside SampleToken: which rows a device picks the tokens of must not show.
#include <bit>
#include <cmath>
#include <initializer_list>
#include <utility>
#include <vector>

#include "engine/backend/sampling.h"
#include "tests/engine/backend/backend_fixture.h"

namespace lm {
namespace {

class SampleRowsTest : public BackendTest {
 protected:
  void ExpectSamplesOfHost(Matrix logits, const std::vector<SamplingRow>& rows) {
    DeviceMatrix on_device(backend(), logits, /*padding=*/3);
    std::vector<absl::StatusOr<int32_t>> got, got_alone;
    std::vector<float> margins;
    ASSERT_TRUE(backend()->Sample(on_device.tensor(), rows, &got, &margins).ok());
    ASSERT_TRUE(backend()->Sample(on_device.tensor(), rows, &got_alone, nullptr).ok());
    EXPECT_EQ(got, got_alone);
    ASSERT_EQ(got.size(), rows.size());
    ASSERT_EQ(margins.size(), rows.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      const absl::Span<const float> row(logits.row(rows[i].row), logits.cols);
      const absl::StatusOr<int32_t> wanted = SampleToken(row, rows[i]);
      ASSERT_EQ(wanted.ok(), got[i].ok()) << i << ": " << wanted.status() << got[i].status();
      if (wanted.ok()) {
        EXPECT_EQ(*wanted, *got[i]) << i;
        if (!rows[i].allowed.empty() || !AdjustmentsOf(rows[i]).empty()) continue;
        const float margin = MarginOf(row, *wanted);
        EXPECT_TRUE(margin == margins[i] || std::abs(margin - margins[i]) < 1e-6f)
            << i << ": " << margin << " " << margins[i];
      } else {
        EXPECT_EQ(wanted.status(), got[i].status()) << i;
      }
    }
  }
};

// Every other word allows nothing.
std::vector<uint64_t> RandomMask(int64_t tokens, Random* random) {
  std::vector<uint64_t> mask((tokens + 63) / 64);
  for (size_t i = 1; i < mask.size(); i += 2) mask[i] = random->Int(0, INT64_MAX);
  mask.back() &= ~uint64_t{0} >> (mask.size() * 64 - tokens);
  mask[0] |= 2;  // one at least
  return mask;
}

TEST_P(SampleRowsTest, PicksWhatTheHostPicks) {
  Random random(80);
  const std::vector<std::pair<int32_t, double>> biases = {{7, 2.5}, {3, -INFINITY}, {7, -1e-9}};
  const std::vector<std::pair<int32_t, double>> great = {{5, 1e280}};
  for (const int64_t tokens : {1, 63, 64, 1000, 5001}) {
    Matrix logits = random.Normals(12, tokens);
    for (int64_t i = 0; i < tokens; ++i) logits.row(1)[i] = i % 3 == 2 ? 1.0f : 0.5f;  // ties
    for (int64_t i = 0; i < tokens; ++i) logits.row(2)[i] = i % 2 == 0 ? -0.0f : 0.0f;
    std::vector<std::vector<uint64_t>> masks;
    for (int64_t i = 0; i < 12; ++i) masks.push_back(RandomMask(tokens, &random));
    std::vector<SamplingRow> rows;
    const std::vector<int32_t> context = {0};
    for (int32_t i = 0; i < 12; ++i) {
      SamplingRow row = {.row = 11 - i, .context = context};
      if (i % 3 == 1 && tokens > 2) row.allowed = masks[i];
      if ((i == 8 || i == 9) && tokens > 2) row.allowed = masks[7];  // as the row before
      if (i % 4 == 3 && tokens > 10) row.options.logit_bias = i % 8 == 3 ? biases : great;
      if (i == 6) row.options.temperature = 0.8;
      if (i == 10) row.options.repeat_penalty = 1.5;
      rows.push_back(row);
    }
    SCOPED_TRACE(tokens);
    ExpectSamplesOfHost(logits, rows);
  }
  ExpectSamplesOfHost(Matrix(1, 10), {});
}

// Rows of every kind of options, of vocabularies of one part and of several (sampled_row.cuh).
TEST_P(SampleRowsTest, DrawsWhatTheHostDraws) {
  Random random(82);
  auto one_of = [&random](std::initializer_list<double> values) {
    return values.begin()[random.Int(0, static_cast<int64_t>(values.size()) - 1)];
  };
  for (const int64_t tokens : {1, 65, 700, 3000, 9001}) {
    for (int turn = 0; turn < 2; ++turn) {
      constexpr int32_t kRows = 10;
      Matrix logits = random.Normals(kRows, tokens);
      std::vector<std::vector<uint64_t>> masks;
      std::vector<std::vector<int32_t>> contexts;
      std::vector<std::vector<std::pair<int32_t, double>>> biases;
      std::vector<SamplingRow> rows;
      for (int32_t i = 0; i < kRows; ++i) {
        const auto spread = static_cast<float>(one_of({0, 1e-6, 0.5, 3, 8}));
        const bool ties = random.Int(0, 3) == 0;
        for (float& l : absl::MakeSpan(logits.row(i), tokens)) {
          l = ties ? std::round(l * spread) : l * spread;
        }
        masks.push_back(RandomMask(tokens, &random));
        contexts.emplace_back(random.Int(0, 90));
        for (int32_t& token : contexts.back()) token = random.Int(0, tokens - 1);
        biases.emplace_back(random.Int(0, 3));
        for (auto& [token, bias] : biases.back()) {
          token = random.Int(0, tokens - 1);
          bias = one_of({-1e9, -1, 4});
        }
      }
      for (int32_t i = 0; i < kRows; ++i) {
        SamplingRow row = {.row = i, .context = contexts[i]};
        row.options = {.repeat_penalty = one_of({1, 1, 1.2, 0.8}),
                       .logit_bias = biases[i],
                       .temperature = one_of({0, 0.1, 0.7, 1, 2, 1e5}),
                       .top_k = static_cast<int32_t>(one_of({0, 0, 1, 40, 1500, 2500})),
                       .top_p = one_of({1, 0.95, 0.4}),
                       .min_p = one_of({0, 0, 0.1}),
                       .seed = static_cast<uint64_t>(random.Int(0, INT64_MAX))};
        if (random.Int(0, 1) == 1 && tokens > 2) row.allowed = masks[i];
        rows.push_back(row);
      }
      SCOPED_TRACE(tokens);
      ExpectSamplesOfHost(logits, rows);
    }
  }
}

// More adjusted tokens than a device looks through; a vocabulary of as many parts as there are, and
// those of more tokens than threads look at twice.
TEST_P(SampleRowsTest, DrawsOfManyTokensAndAdjustments) {
  constexpr int64_t kTokens = 300'001;
  Random random(83);
  const Matrix logits = random.Normals(2, kTokens);
  std::vector<std::pair<int32_t, double>> few, many;
  for (int32_t i = 0; i < 100; ++i) few.push_back({i * 2999 + 7, i % 2 == 0 ? 6 : -6});
  for (int32_t i = 0; i < 129; ++i) many.push_back({i * 2000 + 1, 6});
  const std::vector<int32_t> context = {1, 299'000, 300'000};
  SamplingOptions options = {.repeat_penalty = 1.3, .logit_bias = few, .temperature = 0.9};
  std::vector<SamplingRow> rows;
  for (const double top_p : {1.0, 0.3}) {
    for (const int32_t top_k : {0, 50}) {
      options.top_p = top_p;
      options.top_k = top_k;
      options.seed = rows.size();
      rows.push_back({.row = 1, .options = options, .context = context});
    }
  }
  options.logit_bias = many;
  rows.push_back({.row = 0, .options = options, .context = context});
  rows.push_back({.row = 0, .options = {.logit_bias = many}, .context = context});
  ExpectSamplesOfHost(logits, rows);
}

TEST_P(SampleRowsTest, ARowWithoutNumbersIsAnErrorOfItsOwn) {
  Random random(81);
  Matrix logits = random.Normals(4, 200);
  logits.row(1)[150] = NAN;
  logits.row(2)[3] = INFINITY;
  const std::vector<uint64_t> first_word = {~uint64_t{0}, 0, 0, 0}, others = {0, 0, 1, 1};
  ExpectSamplesOfHost(logits, {{.row = 0},
                               {.row = 1},
                               {.row = 2},
                               {.row = 3},
                               {.row = 1, .allowed = first_word},
                               {.row = 2, .allowed = first_word},
                               {.row = 1, .allowed = others},
                               {.row = 2, .allowed = others},
                               {.row = 1, .options = {.temperature = 1, .top_k = 3}},
                               {.row = 0, .options = {.temperature = 1, .top_p = 0.5}}});
}

INSTANTIATE_BACKEND_TESTS(SampleRowsTest);

}  // namespace
}  // namespace lm
