#include "engine/runtime/submit_ahead.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "tests/engine/runtime/held_generator.h"
#include "tests/engine/runtime/scripted_model.h"

namespace lm {
namespace {

using Submitted = absl::StatusOr<std::shared_ptr<Request>>;

TEST(SubmitAheadTest, AQueueThatIsFullLosesNothing) {
  const auto script = std::make_shared<Script>();
  const std::shared_ptr<Engine> engine =
      Engine::Start(MakeScriptedModel(script), {.max_sequences = 2, .max_queued = 3}).value();
  std::vector<size_t> taken;
  SubmitAhead(
      50,
      [&](size_t i) {
        return engine->Submit({.prompt = {static_cast<int32_t>(i)}, .options = {.max_tokens = 3}});
      },
      [&](size_t i, Submitted request) {
        ASSERT_TRUE(request.ok()) << request.status();
        EXPECT_EQ((*request)->spec().prompt[0], static_cast<int32_t>(i));
        EXPECT_TRUE(Await(*request).status.ok());
        taken.push_back(i);
      });
  ASSERT_EQ(taken.size(), 50u);
  for (size_t i = 0; i < taken.size(); ++i) EXPECT_EQ(taken[i], i);
}

// And whatever else is wrong with one is its own.
TEST(SubmitAheadTest, WhereNothingIsUnderWayTheErrorStands) {
  HeldGenerator generator;
  generator.room = 1;
  std::vector<absl::StatusCode> taken;
  SubmitAhead(
      4,
      [&](size_t i) -> Submitted {
        if (i == 1) return absl::InvalidArgumentError("no prompt");
        return generator.Submit({.text = "?"}, nullptr);
      },
      [&](size_t i, Submitted request) {
        if (i == 0) generator.Say(0, "yes");
        taken.push_back(request.status().code());
      });
  using enum absl::StatusCode;
  EXPECT_THAT(taken,
              testing::ElementsAre(kOk, kInvalidArgument, kResourceExhausted, kResourceExhausted));
}

TEST(SubmitAheadTest, IsAFewThousandAheadAtMost) {
  HeldGenerator generator;
  generator.room = 3 * kMostAhead;
  size_t answered = 0;
  SubmitAhead(
      2 * kMostAhead + 1, [&](size_t) { return generator.Submit({.text = "?"}, nullptr); },
      [&](size_t i, Submitted) {
        EXPECT_EQ(generator.asked.size(), std::min(i + kMostAhead, 2 * kMostAhead + 1));
        ++answered;
      });
  EXPECT_EQ(answered, 2 * kMostAhead + 1);
}

}  // namespace
}  // namespace lm
