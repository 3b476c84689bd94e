#include "engine/base/fair_mutex.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "engine/base/checkpoint.h"

namespace lm {
namespace {

TEST(FairMutexTest, OneThreadAtATimeHasIt) {
  FairMutex mutex;
  int count = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) {
        const FairMutexLock lock(&mutex);
        ASSERT_TRUE(lock.held());
        ++count;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(count, 4000);
  EXPECT_TRUE(mutex.TryLock());
  EXPECT_FALSE(mutex.TryLock());
  mutex.Unlock();
}

TEST(FairMutexTest, WhoTakesItAgainAndAgainLetsTheOthersIn) {
  FairMutex mutex;
  std::atomic<bool> begun{false}, over{false};
  std::thread greedy([&] {
    while (!over) {
      const FairMutexLock lock(&mutex);
      begun = true;
      absl::SleepFor(absl::Milliseconds(2));
    }
  });
  while (!begun) absl::SleepFor(absl::Milliseconds(1));
  const absl::Time began = absl::Now();
  for (int i = 0; i < 20; ++i) const FairMutexLock lock(&mutex);
  EXPECT_LT(absl::Now() - began, absl::Seconds(5));
  over = true;
  greedy.join();
}

TEST(FairMutexTest, WhoIsInterruptedWaitsNoLongerAndIsInNobodysWay) {
  FairMutex mutex;
  std::atomic<bool> interrupted{false};
  std::thread first;
  {
    const FairMutexLock lock(&mutex);
    first = std::thread([&] {
      const CheckpointScope scope([&] { return interrupted.load(); });
      const FairMutexLock mine(&mutex);
      EXPECT_TRUE(absl::IsCancelled(mine.status())) << mine.status();
    });
    absl::SleepFor(absl::Milliseconds(20));
    interrupted = true;
    first.join();
  }
  const FairMutexLock lock(&mutex);
  EXPECT_TRUE(lock.held());
}

}  // namespace
}  // namespace lm
