#include "engine/runtime/work_meter.h"

#include <gtest/gtest.h>

#include "tests/engine/runtime/scripted_model.h"

namespace lm {
namespace {

class WorkMeterTest : public testing::Test {
 protected:
  // Adds a sequence with these KV blocks to the step.
  void Add(std::vector<int32_t> blocks, StepEntry entry) {
    auto request = std::make_shared<Request>(RequestSpec{.prompt = {1, 2, 3}});
    sequences_.push_back(std::make_unique<Sequence>(request, &model_->tokenizer(), 100));
    sequences_.back()->block_table().blocks = {std::move(blocks)};
    entry.sequence = sequences_.back().get();
    plan_.entries.push_back(entry);
  }

  const std::unique_ptr<Model> model_ = MakeScriptedModel(std::make_shared<Script>());
  std::vector<std::unique_ptr<Sequence>> sequences_;
  StepPlan plan_;
  WorkMeter meter_{
      {.body_parameters = 1000, .body_bytes = 1200, .head_parameters = 50, .head_bytes = 60},
      {.classes = {{.num_blocks = 10, .block_bytes = 100}}}};
};

TEST_F(WorkMeterTest, AStepReadsTheWeightsOnce) {
  Add({0}, {.num_tokens = 1, .decode = true, .samples = true});
  Add({1, 2}, {.num_tokens = 1, .decode = true, .samples = true});
  const StepWork work = meter_.Count(plan_);
  EXPECT_EQ(work.decode.operations, 2 * (2 * 1000 + 2 * 50));
  EXPECT_EQ(work.decode.bytes, 1200 + 60 + 3 * 100);
  EXPECT_EQ(work.prefill.operations, 0);
  EXPECT_EQ(work.prefill.bytes, 0);
}

TEST_F(WorkMeterTest, ASharedBlockIsReadOnceAStep) {
  Add({7, 8, 1}, {.num_tokens = 1, .decode = true, .samples = true});
  Add({7, 8, 2}, {.num_tokens = 1, .decode = true, .samples = true});
  for (int step = 0; step < 3; ++step) {
    EXPECT_EQ(meter_.Count(plan_).decode.bytes, 1200 + 60 + 4 * 100);
  }
}

TEST_F(WorkMeterTest, AMixedStepSharesTheWeightsByTokens) {
  Add({1}, {.num_tokens = 1, .decode = true, .samples = true});
  Add({2}, {.first = 5, .num_tokens = 3});
  const StepWork work = meter_.Count(plan_);
  EXPECT_EQ(work.decode.positions, 1);
  EXPECT_EQ(work.prefill.positions, 6 + 7 + 8);
  EXPECT_EQ(work.decode.bytes, 1260.0 / 4 + 100);
  EXPECT_EQ(work.prefill.bytes, 1260.0 * 3 / 4 + 100);
  EXPECT_EQ(work.prefill.operations, 3 * 2 * 1000);
  EXPECT_EQ(work.decode.operations, 2 * 1000 + 2 * 50);
}

TEST_F(WorkMeterTest, WithoutLogitsTheHeadIsNotRead) {
  Add({}, {.num_tokens = 3});
  EXPECT_EQ(meter_.Count(plan_).prefill.bytes, 1200);
  EXPECT_EQ(meter_.Count({}).prefill.bytes, 0);
}

}  // namespace
}  // namespace lm
