#include "engine/base/checkpoint.h"

#include <gtest/gtest.h>

#include <thread>

#include "absl/time/clock.h"

namespace lm {
namespace {

void AwaitInterval() { absl::SleepFor(absl::Milliseconds(kCheckpointInterval.count() + 1)); }

TEST(CheckpointTest, WithoutAScopeNothingIsInterrupted) {
  EXPECT_FALSE(Interrupted());
  EXPECT_TRUE(Checkpoint().ok());
}

TEST(CheckpointTest, TheQuestionIsPutNowAndThenAndItsYesStays) {
  int questions = 0;
  bool wanted = true;
  {
    CheckpointScope scope([&] {
      ++questions;
      return !wanted;
    });
    for (int i = 0; i < 1000; ++i) EXPECT_TRUE(Checkpoint().ok());
    EXPECT_LT(questions, 500);
    AwaitInterval();
    EXPECT_FALSE(Interrupted());
    wanted = false;
    AwaitInterval();
    EXPECT_TRUE(absl::IsCancelled(Checkpoint()));
    wanted = true;
    AwaitInterval();
    EXPECT_TRUE(Interrupted());
    std::thread([] { EXPECT_FALSE(Interrupted()); }).join();
  }
  EXPECT_FALSE(Interrupted());
}

TEST(CheckpointTest, TheOuterScopeIsAsked) {
  CheckpointScope outer([] { return true; });
  {
    CheckpointScope inner([] { return false; });
    AwaitInterval();
    EXPECT_TRUE(Interrupted());
  }
  EXPECT_TRUE(Interrupted());
}

}  // namespace
}  // namespace lm
