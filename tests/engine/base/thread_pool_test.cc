#include "engine/base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cfenv>
#include <chrono>
#include <new>
#include <numeric>

namespace lm {
namespace {

TEST(ThreadPoolTest, RunsEachIndexOnce) {
  for (int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    for (int64_t count : {0, 1, 2, 3, 17, 1000}) {
      std::vector<std::atomic<int>> hits(count);
      pool.ParallelFor(count, [&](int64_t i) { hits[i].fetch_add(1); });
      for (auto& hit : hits) ASSERT_EQ(hit.load(), 1);
    }
  }
}

TEST(ThreadPoolTest, RoundsToNearestWhoeverMadeIt) {
  std::fesetround(FE_UPWARD);
  ThreadPool pool(3);
  std::fesetround(FE_TONEAREST);
  std::atomic<int> begun{0};
  pool.ParallelFor(3, [&](int64_t) {
    for (++begun; begun < 3;) std::this_thread::yield();  // one on each thread
    EXPECT_EQ(std::fegetround(), FE_TONEAREST);
  });
}

TEST(ThreadPoolTest, ManyShortLoopsInARow) {
  ThreadPool pool(4);
  int64_t total = 0;
  for (int loop = 0; loop < 20000; ++loop) {
    std::atomic<int64_t> sum{0};
    pool.ParallelFor(8, [&](int64_t i) { sum.fetch_add(i); });
    total += sum.load();
  }
  EXPECT_EQ(total, 20000 * 28);
}

TEST(ThreadPoolTest, LoopsOfDifferentCallersDoNotMix) {
  ThreadPool pool(3);
  std::vector<std::thread> callers;
  for (int c = 0; c < 4; ++c) {
    callers.emplace_back([&pool] {
      for (int loop = 0; loop < 500; ++loop) {
        std::atomic<int64_t> sum{0};
        pool.ParallelFor(100, [&](int64_t i) { sum.fetch_add(i); });
        ASSERT_EQ(sum.load(), 4950);
      }
    });
  }
  for (auto& caller : callers) caller.join();
}

TEST(ThreadPoolTest, WhatABodyThrowsComesOutOnce) {
  ThreadPool pool(4);
  for (int loop = 0; loop < 200; ++loop) {
    EXPECT_THROW(pool.ParallelFor(64, [](int64_t) { throw std::bad_alloc(); }), std::bad_alloc);
    EXPECT_THROW(pool.ParallelFor(64,
                                  [](int64_t i) {
                                    if (i == 63) throw std::bad_alloc();
                                  }),
                 std::bad_alloc);
    std::atomic<int64_t> sum{0};
    pool.ParallelFor(100, [&](int64_t i) { sum.fetch_add(i); });
    ASSERT_EQ(sum.load(), 4950);
  }
}

TEST(ThreadPoolTest, SleepingWorkersWakeUpForWorkAndForTheEnd) {
  ThreadPool pool(3);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  std::atomic<int> sum{0};
  pool.ParallelFor(3, [&](int64_t) { sum.fetch_add(1); });
  EXPECT_EQ(sum.load(), 3);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

}  // namespace
}  // namespace lm
