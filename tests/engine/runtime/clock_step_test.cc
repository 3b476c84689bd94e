// Somebody sets the machine's clock while a model works: no deadline is nearer or farther for it.
#include <gtest/gtest.h>

#include <thread>

#include "absl/time/clock.h"
#include "tests/engine/runtime/scripted_model.h"
#include "tests/settable_clock.h"

namespace lm {
namespace {

constexpr long kHour = 3600;

class ClockStepTest : public testing::Test {
 protected:
  ~ClockStepTest() override { SetClock(0); }

  // The answer of a model that works as long as `meanwhile` takes, or until it is given up.
  template <typename Meanwhile>
  Generation AnswerWhile(int32_t timeout_ms, Meanwhile meanwhile) {
    const std::shared_ptr<Engine> engine = StartScripted(script_);
    script_->Pause();
    const std::shared_ptr<Request> request =
        engine->Submit({.prompt = {1}, .options = {.max_tokens = 3, .timeout_ms = timeout_ms}})
            .value();
    script_->AwaitForward(1);
    std::thread other([&] {
      absl::SleepFor(absl::Milliseconds(20));  // the other thread waits by then
      meanwhile();
      script_->Resume();
    });
    request->WaitFor(absl::InfiniteDuration());
    other.join();
    return request->result();
  }

  const std::shared_ptr<Script> script_ = std::make_shared<Script>();
};

TEST_F(ClockStepTest, TheClockIsSet) {
  const absl::Time before = absl::Now();
  SetClock(kHour);
  EXPECT_GE(absl::Now() - before, absl::Hours(1));
}

TEST_F(ClockStepTest, NobodyIsOutOfTimeWhereItGoesForward) {
  const Generation answer = AnswerWhile(/*timeout_ms=*/60000, [] {
    SetClock(kHour);
    absl::SleepFor(absl::Milliseconds(30));
  });
  EXPECT_TRUE(answer.status.ok()) << answer.status;
  EXPECT_LT(answer.total, absl::Minutes(1));
}

TEST_F(ClockStepTest, NobodyHasMoreTimeWhereItGoesBack) {
  const Generation answer = AnswerWhile(/*timeout_ms=*/100, [] {
    SetClock(-kHour);
    absl::SleepFor(absl::Milliseconds(300));
  });
  EXPECT_EQ(answer.status.message(), "the generation took longer than timeout_ms = 100");
  EXPECT_GE(answer.total, absl::ZeroDuration());
}

// Else he would not hear of an interrupt meanwhile.
TEST_F(ClockStepTest, NobodyWaitsLongerThanHeWants) {
  const std::shared_ptr<Engine> engine = StartScripted(script_);
  script_->Pause();
  const std::shared_ptr<Request> request = engine->Submit({.prompt = {1}}).value();
  script_->AwaitForward(1);
  SetClock(kHour);
  std::thread other([&] {
    absl::SleepFor(absl::Seconds(2));
    script_->Resume();
  });
  EXPECT_FALSE(request->WaitFor(absl::Milliseconds(20)));
  EXPECT_TRUE(request->WaitFor(absl::InfiniteDuration()));
  other.join();
}

}  // namespace
}  // namespace lm
