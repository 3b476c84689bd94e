#include "engine/remote/server_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "absl/time/time.h"
#include "engine/base/monotonic_time.h"

namespace lm {
namespace {

// So many may be sent between two moments, as often as one looks.
int SentWithin(ServerPool* pool, MonotonicTime from, MonotonicTime until, int64_t tokens,
               int64_t unused) {
  int sent = 0;
  for (MonotonicTime now = from; now < until;) {
    MonotonicTime next = MonotonicTime::InfiniteFuture();
    if (const std::optional<size_t> place = pool->Choose(0, {}, now, &next)) {
      pool->Sent(*place, 0, tokens, now);
      pool->Over(*place, 0, unused);
      ++sent;
    } else {
      EXPECT_GE(next, now);
      now = std::max(next, now + absl::Microseconds(1));
    }
  }
  return sent;
}

TEST(ServerPoolTest, KeepsToRequestsAMinute) {
  ServerPool pool({"http://a"}, {.rpm = 600});
  const MonotonicTime begin = MonotonicTime::Now() + absl::Seconds(10);
  EXPECT_NEAR(SentWithin(&pool, begin, begin + absl::Minutes(1), 1, 0), 610, 1);
}

// Tokens that were taken and not used count for nobody; a large request comes to its turn, and the
// others wait for what it has taken.
TEST(ServerPoolTest, KeepsToTokensAMinute) {
  ServerPool pool({"http://a"}, {.tpm = 6000});
  MonotonicTime begin = MonotonicTime::Now() + absl::Seconds(10);
  EXPECT_NEAR(SentWithin(&pool, begin, begin + absl::Minutes(1), 1010, 1000), 610, 1);
  begin += absl::Minutes(2);
  EXPECT_NEAR(SentWithin(&pool, begin, begin + absl::Minutes(1), 1000, 0), 7, 1);
}

TEST(ServerPoolTest, WithoutLimitsNobodyWaits) {
  ServerPool pool({"http://a"}, {});
  MonotonicTime next = MonotonicTime::InfiniteFuture();
  for (int i = 0; i < 1000; ++i) {
    ASSERT_TRUE(pool.Choose(0, {}, MonotonicTime::Now(), &next).has_value());
    pool.Sent(0, 0, 1'000'000, MonotonicTime::Now());
    pool.Over(0, 0, 0);
  }
}

TEST(ServerPoolTest, OneOfSeveralThatFailsRestsOnceForThoseSentTogether) {
  ServerPool pool({"http://a", "http://b"}, {});
  const MonotonicTime now = MonotonicTime::Now() + absl::Seconds(10);
  for (int i = 0; i < 16; ++i) pool.Failed(0, /*reached=*/true, now);
  MonotonicTime next = MonotonicTime::InfiniteFuture();
  EXPECT_EQ(pool.Choose(0, {}, now, &next), 1);
  EXPECT_LE(next, now + absl::Milliseconds(100));
  EXPECT_EQ(pool.Choose(0, {}, next, &next), 0);
  // One that is alone is asked again at once.
  ServerPool alone({"http://a"}, {});
  for (int i = 0; i < 16; ++i) alone.Failed(0, /*reached=*/true, now);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(alone.Choose(0, {}, now, &next), 0);
    alone.Sent(0, 0, 1, now);
  }
}

// As long as one works: else what a dead server is given again and again would be lost.
TEST(ServerPoolTest, WhatHasFailedAtAServerWaitsForAnother) {
  ServerPool pool({"http://dead", "http://b"}, {.concurrency = 1});
  MonotonicTime now = MonotonicTime::Now() + absl::Seconds(10);
  MonotonicTime next = MonotonicTime::InfiniteFuture();
  pool.Sent(1, 0, 1, now);
  pool.Failed(0, /*reached=*/false, now);
  now += absl::Seconds(1);  // the pause is over, and the other one is full
  EXPECT_EQ(pool.Choose(0, {}, now, &next), 0);
  EXPECT_EQ(pool.Choose(0, {{0}}, now, &next), std::nullopt);
  EXPECT_TRUE(pool.HasOther({0}, now));
  pool.Over(1, 0, 0);
  EXPECT_EQ(pool.Choose(0, {{0}}, now, &next), 1);
  // Where it has failed everywhere it is asked of one that works for others, and at last of any.
  pool.Answered(1);
  pool.Failed(1, /*reached=*/true, now);
  EXPECT_EQ(pool.Choose(0, {{0, 1}}, now, &next), std::nullopt);
  EXPECT_EQ(pool.Choose(0, {{0, 1}}, now + absl::Seconds(1), &next), 1);
  EXPECT_FALSE(pool.HasOther({0, 1}, now));
  for (int i = 1; i <= 2; ++i) pool.Failed(1, /*reached=*/true, now + absl::Minutes(i));
  EXPECT_FALSE(pool.HasOther({0}, now));
  EXPECT_EQ(pool.Choose(0, {{0, 1}}, now + absl::Hours(1), &next), 0);
}

TEST(ServerPoolTest, WhatHasFailedOnceWaitsNeitherForOneThatRestsNorForLong) {
  ServerPool pool({"http://a", "http://b"}, {.concurrency = 1});
  MonotonicTime now = MonotonicTime::Now() + absl::Seconds(10);
  MonotonicTime next = MonotonicTime::InfiniteFuture();
  pool.Answered(0);
  pool.Answered(1);
  const ServerPool::Shunned shunned{.places = {0}, .since = now};
  pool.Sent(1, 0, 1, now);
  EXPECT_EQ(pool.Choose(0, shunned, now, &next), std::nullopt);
  EXPECT_EQ(next, now + absl::Seconds(5));
  EXPECT_EQ(pool.Choose(0, shunned, next, &next), 0);  // who works may do better the next time
  pool.Over(1, 0, 0);
  pool.Refused(1, 0, absl::Seconds(20), now);
  EXPECT_FALSE(pool.HasOther({0}, now));
  EXPECT_EQ(pool.Choose(0, shunned, now, &next), 0);
}

TEST(ServerPoolTest, TellsWhetherThereIsRoomAtAll) {
  ServerPool pool({"http://a", "http://b"}, {.concurrency = 1, .rpm = 120});
  const MonotonicTime now = MonotonicTime::Now() + absl::Seconds(10);
  MonotonicTime next = MonotonicTime::InfiniteFuture();
  EXPECT_TRUE(pool.HasRoom(now, &next));
  pool.Sent(0, 0, 1, now);
  EXPECT_TRUE(pool.HasRoom(now, &next));
  pool.Sent(1, 0, 1, now);
  EXPECT_FALSE(pool.HasRoom(now, &next));
  EXPECT_EQ(next, MonotonicTime::InfiniteFuture());  // until one of them is over
  pool.Over(0, 0, 0);
  EXPECT_FALSE(pool.HasRoom(now, &next));  // two a second
  EXPECT_LE(next, now + absl::Seconds(1));
  EXPECT_TRUE(pool.HasRoom(now + absl::Seconds(1), &next));
}

// What waits for a connection would be under way in name only.
TEST(ServerPoolTest, NoMoreAreUnderWayThanThereAreConnections) {
  for (bool shares : {false, true}) {
    ServerPool pool({shares ? "https://a" : "HTTP://a"}, {.concurrency = 300});
    const MonotonicTime now = MonotonicTime::Now();
    MonotonicTime next = MonotonicTime::InfiniteFuture();
    int sent = 0;
    for (; pool.Choose(0, {}, now, &next).has_value(); ++sent) pool.Sent(0, 0, 1, now);
    EXPECT_EQ(sent, shares ? 300 : 256);
  }
}

TEST(ServerPoolTest, WhoIsRefusedWaitsLongerEachTime) {
  ServerPool pool({"http://a"}, {});
  const MonotonicTime now = MonotonicTime::Now();
  absl::Duration most = absl::Milliseconds(25);
  for (int refusals = 0; refusals < 20; ++refusals) {
    const absl::Duration pause = pool.Refused(0, refusals, absl::ZeroDuration(), now);
    EXPECT_GE(pause, most / 2) << refusals;
    EXPECT_LE(pause, most) << refusals;
    most = std::min(2 * most, absl::Seconds(30));
  }
  // As the server asks, where it does.
  EXPECT_EQ(pool.Refused(0, 0, absl::Seconds(7), now), absl::Seconds(7));
}

// What takes more than was thought is paid for, too.
TEST(ServerPoolTest, WhatWasUsedBeyondTheGuessIsTaken) {
  ServerPool pool({"http://a"}, {.tpm = 6000});
  const MonotonicTime begin = MonotonicTime::Now() + absl::Seconds(10);
  EXPECT_NEAR(SentWithin(&pool, begin, begin + absl::Minutes(1), 10, -90), 61, 1);
}

// Else a server that takes requests and never answers would have all rows wait.
TEST(ServerPoolTest, ThePrefixesFirstRowIsAloneForAFewSecondsAtMost) {
  ServerPool pool({"http://hangs", "http://b"}, {});
  const MonotonicTime begin = MonotonicTime::Now() + absl::Seconds(10);
  MonotonicTime next = MonotonicTime::InfiniteFuture();
  ASSERT_EQ(pool.Choose(7, {}, begin, &next), 0);
  pool.Sent(0, 7, 1, begin);
  EXPECT_EQ(pool.Choose(7, {}, begin + absl::Seconds(1), &next), std::nullopt);
  ASSERT_LE(next, begin + absl::Seconds(10));
  ASSERT_EQ(pool.Choose(7, {}, next, &next), 1);
  pool.Sent(1, 7, 1, next);
  EXPECT_EQ(pool.Choose(7, {}, next, &next), std::nullopt);  // now it is to be there
  pool.Begun(1, 7);
  for (int i = 1; i < 16; ++i) {
    ASSERT_EQ(pool.Choose(7, {}, next, &next), 1);
    pool.Sent(1, 7, 1, next);
  }
  EXPECT_EQ(pool.Choose(7, {}, next, &next),
            std::nullopt);  // it is full, and the other one may hang
  pool.Over(1, 7, 0);
  EXPECT_EQ(pool.Choose(7, {}, next, &next), 1);
}

// A long prompt takes all of them longer: they are not to wait for one after the other.
TEST(ServerPoolTest, ThePrefixesFirstRowsGoToEachServerOnceItTakesLong) {
  ServerPool pool({"http://a", "http://b", "http://c"}, {});
  const MonotonicTime begin = MonotonicTime::Now() + absl::Seconds(10);
  MonotonicTime next = MonotonicTime::InfiniteFuture();
  pool.Sent(0, 7, 1, begin);
  EXPECT_EQ(pool.Choose(7, {}, begin, &next), std::nullopt);
  const MonotonicTime each = std::exchange(next, MonotonicTime::InfiniteFuture());
  EXPECT_EQ(each, begin + absl::Seconds(5));
  for (size_t place : {1, 2}) {
    ASSERT_EQ(pool.Choose(7, {}, each, &next), place);
    pool.Sent(place, 7, 1, each);
  }
  EXPECT_EQ(pool.Choose(7, {}, each, &next), std::nullopt);
  EXPECT_EQ(next, begin + absl::Seconds(10));
  for (size_t i = 0; i < 3; ++i) {
    ASSERT_EQ(pool.Choose(7, {}, next, &next), i);
    pool.Sent(i, 7, 1, next);
  }
  ServerPool alone({"http://a"}, {});
  alone.Sent(0, 7, 1, begin);
  EXPECT_EQ(alone.Choose(7, {}, each, &next), 0);
}

// Where it refuses what others answer, or all that it is asked.
TEST(ServerPoolTest, WhoRefusesWhatOthersAnswerIsAskedByOneAtATime) {
  MonotonicTime now = MonotonicTime::Now() + absl::Seconds(10),
                next = MonotonicTime::InfiniteFuture();
  for (bool is_servers : {true, false}) {
    ServerPool pool({"http://refuses", "http://b"}, {});
    pool.Doubted(0, is_servers, now);
    EXPECT_TRUE(pool.HasOther({1}, now));  // nobody has answered yet
    if (is_servers) {
      pool.Answered(1);
      pool.Doubted(0, is_servers, now);
    } else {
      for (int i = 0; i < 2; ++i) pool.Doubted(0, is_servers, now);
    }
    EXPECT_FALSE(pool.HasOther({1}, now));
    EXPECT_EQ(pool.Choose(0, {}, now, &next), 1);
    now += absl::Seconds(1);
    EXPECT_EQ(pool.Choose(0, {}, now, &next), 0);
    pool.Sent(0, 0, 1, now);
    pool.Sent(1, 0, 1, now);
    EXPECT_EQ(pool.Choose(0, {}, now, &next), 1);
    pool.Over(0, 0, 0);
    pool.Heard(0);  // nobody could have answered that
    EXPECT_TRUE(pool.HasOther({1}, now));
  }
}

}  // namespace
}  // namespace lm
