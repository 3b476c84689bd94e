#include "engine/runtime/step_pacer.h"

#include <gtest/gtest.h>

namespace lm {
namespace {

constexpr int32_t kMost = 512;

TEST(StepPacerTest, HasNoLimitUntilItHasSeenAPrompt) {
  StepPacer pacer;
  EXPECT_EQ(pacer.PromptTokens(absl::Milliseconds(1), kMost), kMost);
  pacer.Record(0, absl::Milliseconds(5));
  EXPECT_EQ(pacer.PromptTokens(absl::Milliseconds(1), kMost), kMost);
}

TEST(StepPacerTest, FillsWhatDecodingLeavesOfTheTarget) {
  StepPacer pacer;
  for (int i = 0; i < 50; ++i) {
    pacer.Record(0, absl::Milliseconds(10));
    pacer.Record(100, absl::Milliseconds(10 + 50));  // half a millisecond a token
  }
  EXPECT_NEAR(pacer.PromptTokens(absl::Milliseconds(60), kMost), 100, 1);
  EXPECT_NEAR(pacer.PromptTokens(absl::Milliseconds(110), kMost), 200, 1);
  EXPECT_EQ(pacer.PromptTokens(absl::Seconds(10), kMost), kMost);
  EXPECT_EQ(pacer.PromptTokens(absl::InfiniteDuration(), kMost), kMost);
}

TEST(StepPacerTest, PromptsAlwaysGoOn) {
  StepPacer pacer;
  pacer.Record(0, absl::Milliseconds(80));
  pacer.Record(512, absl::Seconds(2));
  EXPECT_EQ(pacer.PromptTokens(absl::Milliseconds(50), kMost), StepPacer::kLeast);
  EXPECT_EQ(pacer.PromptTokens(absl::Milliseconds(50), 8), 8);
}

TEST(StepPacerTest, FollowsAMachineThatSlowsDown) {
  StepPacer pacer;
  for (int i = 0; i < 50; ++i) pacer.Record(100, absl::Milliseconds(20));
  const int32_t before = pacer.PromptTokens(absl::Milliseconds(50), kMost);
  for (int i = 0; i < 30; ++i) pacer.Record(100, absl::Milliseconds(80));
  EXPECT_NEAR(pacer.PromptTokens(absl::Milliseconds(50), kMost), before / 4, 5);
}

}  // namespace
}  // namespace lm
