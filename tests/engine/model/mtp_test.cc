// The layer that guesses further tokens (mtp.h): its logits against llama.cpp's, and the keys and
// values that prompts leave for it.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <numeric>
#include <tuple>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "engine/model/model.h"
#include "tests/engine/model/golden_file.h"
#include "tests/engine/model/run_model.h"

namespace lm {
namespace {

constexpr int32_t kTokens = 40;      // of golden_tokens.txt
constexpr int32_t kGoldenRows = 15;  // of which the file has the logits, the last ones

// A model and a device.
class MtpTest : public testing::TestWithParam<std::tuple<const char*, const char*>> {
 protected:
  MtpTest() {
    auto model =
        Model::Load(path_, {.device = device_, .kv_type = DType::kF32, .least_split_bytes = 0});
    EXPECT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
    std::ifstream file(ModelPath("golden_tokens", ".txt"));
    std::string line;
    std::getline(file, line);
    std::vector<int32_t> tokens;
    for (absl::string_view id : absl::StrSplit(line, ',')) {
      EXPECT_TRUE(absl::SimpleAtoi(id, &tokens.emplace_back()));
    }
    tokens.resize(kTokens);
    sequence_ = MakeSequence(std::move(tokens), /*first_block=*/0);
  }

  LanguageModel& model() { return model_->language_model(); }

  // The model's hidden states of the sequence's next tokens; with `next` it is told what comes
  // behind each.
  std::vector<float> FeedTokens(int32_t count, bool next) {
    ModelStep step;
    Append(sequence_, count, model(), &step);
    step.hidden_rows.resize(count);
    std::iota(step.hidden_rows.begin(), step.hidden_rows.end(), 0);
    for (int32_t i = 0; i < count && next; ++i) {
      const size_t behind = sequence_.computed + i + 1;
      step.mtp_next.push_back(behind < sequence_.tokens.size() ? sequence_.tokens[behind] : -1);
    }
    sequence_.computed += count;
    return RunStep(model(), std::move(step)).hidden;
  }

  // What the layer makes of the positions [first, first + count) and their hidden states.
  StepResults Guess(int32_t first, int32_t count, const std::vector<float>& hidden) {
    ModelStep step;
    step.tables.blocks.resize(model().cache().classes.size());
    step.tables.Append(sequence_.tokens.data() + first + 1, count, first);
    step.tables.blocks[0] = sequence_.blocks;
    step.mtp_hidden.assign(hidden.begin() + int64_t{first} * model().hidden_size(),
                           hidden.begin() + int64_t{first + count} * model().hidden_size());
    for (int32_t i = 0; i < count; ++i) step.logit_rows.push_back(i);
    step.hidden_rows = step.logit_rows;
    for (int32_t i = 0; i < count; ++i) step.samples.push_back({.row = i});
    return RunStep(model(), std::move(step));
  }

  const std::string name_ = std::get<0>(GetParam()), device_ = std::get<1>(GetParam());
  const std::string path_ = ModelPath(name_, ".gguf");
  std::unique_ptr<Model> model_;
  TestSequence sequence_;
};

TEST_P(MtpTest, ItsLogitsAreThoseOfLlamaCpp) {
  ASSERT_TRUE(model().has_mtp());
  const std::vector<float> hidden = FeedTokens(kTokens, /*next=*/false);
  const std::vector<float> ours = Guess(0, kTokens - 1, hidden).logits;
  const std::vector<float> golden = ReadFloats(ModelPath(name_, ".f32"));
  const int64_t vocab = model().vocab_size();
  ASSERT_EQ(golden.size(), kGoldenRows * vocab);
  const float* const own = ours.data() + ours.size() - golden.size();
  double apart = 0, spread = 0;
  for (size_t i = 0; i < golden.size(); ++i) {
    apart += std::pow(own[i] - golden[i], 2);
    spread += std::pow(golden[i], 2);
  }
  EXPECT_LT(std::sqrt(apart / spread), 1e-4);
}

// A prompt in two pieces, then a guess behind it: the bits of all positions in one.
TEST_P(MtpTest, PromptsLeaveKeysAndValuesForIt) {
  const std::vector<float> hidden = FeedTokens(kTokens, /*next=*/false);
  const StepResults whole = Guess(0, kTokens - 1, hidden);
  sequence_.computed = 0;
  sequence_.blocks = {2, 3};
  FeedTokens(17, /*next=*/true);
  FeedTokens(kTokens - 17, /*next=*/true);
  const StepResults last = Guess(kTokens - 2, 1, hidden);
  const int64_t vocab = model().vocab_size();
  const std::vector<float> expected(whole.logits.end() - vocab, whole.logits.end());
  EXPECT_EQ(last.logits, expected);
  ASSERT_TRUE(last.tokens[0].ok()) << last.tokens[0].status();
  EXPECT_EQ(*last.tokens[0], *whole.tokens.back());
}

// What it is told does not change what the model itself says.
TEST_P(MtpTest, ItChangesNothingOfTheModel) {
  const std::vector<float> without = FeedTokens(kTokens, /*next=*/false);
  sequence_.computed = 0;
  EXPECT_EQ(FeedTokens(kTokens, /*next=*/true), without);
}

TEST_P(MtpTest, CanBeLeftOut) {
  auto without = Model::Load(path_, {.device = device_, .kv_type = DType::kF32, .mtp = false});
  ASSERT_TRUE(without.ok()) << without.status();
  EXPECT_FALSE((*without)->language_model().has_mtp());
  EXPECT_LT((*without)->info().weight_bytes, model_->info().weight_bytes);
  EXPECT_LT((*without)->language_model().cache().classes[0].block_bytes,
            model().cache().classes[0].block_bytes);
}

INSTANTIATE_TEST_SUITE_P(Models, MtpTest,
                         testing::Combine(testing::Values("qwen35-mtp-f32", "glm4moe-mtp-f32"),
                                          testing::Values("reference", "cpu", "cpu+cpu")),
                         [](const auto& info) {
                           return ModelAndDevice(std::get<0>(info.param), std::get<1>(info.param));
                         });

}  // namespace
}  // namespace lm
