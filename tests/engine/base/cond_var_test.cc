#include "engine/base/cond_var.h"

#include <gtest/gtest.h>

#include <thread>

#include "absl/time/clock.h"
#include "tests/settable_clock.h"

namespace lm {
namespace {

class CondVarTest : public testing::Test {
 protected:
  ~CondVarTest() override { SetClock(0); }

  // What was made of it, where another thread says after `pause` that it is done.
  bool AwaitWhileDone(absl::Duration pause, absl::Duration most) {
    std::thread other([&] {
      absl::SleepFor(pause);
      {
        absl::MutexLock lock(&mutex_);
        done_ = true;
      }
      changed_.SignalAll();
    });
    bool is_done;
    {
      absl::MutexLock lock(&mutex_);
      is_done = changed_.AwaitFor(mutex_, absl::Condition(&done_), most);
    }
    other.join();
    return is_done;
  }

  absl::Mutex mutex_;
  CondVar changed_;
  bool done_ = false;
};

TEST_F(CondVarTest, WaitsForTheMoment) {
  const MonotonicTime begin = MonotonicTime::Now();
  absl::MutexLock lock(&mutex_);
  const absl::Condition is_done(&done_);
  EXPECT_FALSE(changed_.AwaitUntil(mutex_, is_done, MonotonicTime::InfinitePast()));
  EXPECT_FALSE(changed_.AwaitUntil(mutex_, is_done, begin + absl::Milliseconds(20)));
  EXPECT_GE(MonotonicTime::Now() - begin, absl::Milliseconds(20));
  done_ = true;
  EXPECT_TRUE(changed_.AwaitUntil(mutex_, is_done, MonotonicTime::InfinitePast()));
}

TEST_F(CondVarTest, WaitsForTheCondition) {
  EXPECT_TRUE(AwaitWhileDone(absl::Milliseconds(5), absl::Hours(1)));
  done_ = false;
  EXPECT_TRUE(AwaitWhileDone(absl::Milliseconds(5), absl::InfiniteDuration()));
}

TEST_F(CondVarTest, WaitsNoLongerWhereTheClockIsSet) {
  for (const long hour : {3600, -3600}) {
    done_ = false;
    SetClock(hour);
    const MonotonicTime begin = MonotonicTime::Now();
    EXPECT_FALSE(AwaitWhileDone(absl::Seconds(1), absl::Milliseconds(20)));
    EXPECT_GE(MonotonicTime::Now() - begin, absl::Milliseconds(20));
  }
}

}  // namespace
}  // namespace lm
