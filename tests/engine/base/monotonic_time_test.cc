#include "engine/base/monotonic_time.h"

#include <gtest/gtest.h>

#include "absl/time/time.h"

namespace lm {
namespace {

TEST(MonotonicTimeTest, CountsAsTimesDo) {
  const MonotonicTime now = MonotonicTime::Now(), later = now + absl::Seconds(3);
  EXPECT_EQ(later - now, absl::Seconds(3));
  EXPECT_LT(now, later);
  EXPECT_EQ(now, now + absl::ZeroDuration());
  EXPECT_LE(now, MonotonicTime::Now());
  EXPECT_EQ(MonotonicTime::FromNanos(now.ToNanos()), now);
  MonotonicTime moved = now;
  moved += absl::Seconds(3);
  EXPECT_EQ(moved, later);
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
  EXPECT_EQ(MonotonicTime::InfiniteFuture().ToChrono(),
            std::chrono::steady_clock::time_point::max());
}

}  // namespace
}  // namespace lm
