#include "engine/base/monotonic_time.h"

#include <gtest/gtest.h>

#include <thread>

#include "absl/time/clock.h"

namespace lm {
namespace {

TEST(MonotonicTimeTest, CountsAsTimesDo) {
  const MonotonicTime now = MonotonicTime::Now(), later = now + absl::Seconds(3);
  EXPECT_EQ(later - now, absl::Seconds(3));
  EXPECT_LT(now, later);
  EXPECT_EQ(now, now + absl::ZeroDuration());
  EXPECT_LE(now, MonotonicTime::Now());
  EXPECT_EQ(MonotonicTime::FromNanos(now.ToNanos()), now);
}

TEST(MonotonicTimeTest, TheInfiniteIsBeyondAll) {
  const MonotonicTime now = MonotonicTime::Now();
  EXPECT_LT(MonotonicTime::InfinitePast(), now);
  EXPECT_LT(now, MonotonicTime::InfiniteFuture());
  EXPECT_EQ(now + absl::InfiniteDuration(), MonotonicTime::InfiniteFuture());
  EXPECT_EQ(MonotonicTime::InfinitePast() + absl::Hours(1), MonotonicTime::InfinitePast());
  EXPECT_EQ(now - MonotonicTime::InfinitePast(), absl::InfiniteDuration());
  EXPECT_LT(now + absl::Hours(24 * 365 * 100),
            MonotonicTime::FromNanos(MonotonicTime::InfiniteFuture().ToNanos()));
}

TEST(MonotonicTimeTest, AwaitUntilWaitsForTheConditionOrTheMoment) {
  absl::Mutex mutex;
  bool done = false;
  const absl::Condition is_done(&done);
  const MonotonicTime begin = MonotonicTime::Now();
  absl::MutexLock lock(&mutex);
  EXPECT_FALSE(AwaitUntil(mutex, is_done, MonotonicTime::InfinitePast()));
  EXPECT_FALSE(AwaitUntil(mutex, is_done, begin + absl::Milliseconds(20)));
  EXPECT_GE(MonotonicTime::Now() - begin, absl::Milliseconds(20));
  for (const absl::Duration most : {absl::Hours(1), absl::InfiniteDuration()}) {
    done = false;
    std::thread other([&] {
      absl::SleepFor(absl::Milliseconds(5));
      absl::MutexLock others(&mutex);
      done = true;
    });
    EXPECT_TRUE(AwaitUntil(mutex, is_done, MonotonicTime::Now() + most));
    other.join();
  }
  EXPECT_TRUE(AwaitUntil(mutex, is_done, MonotonicTime::InfinitePast()));
}

}  // namespace
}  // namespace lm
