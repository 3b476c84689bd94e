#include "engine/base/thread_slot.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace lm {
namespace {

ThreadSlot<const int> slot;

TEST(ThreadSlotTest, EachThreadHasItsOwn) {
  const int here = 1, there = 2;
  EXPECT_EQ(slot.get(), nullptr);
  ASSERT_TRUE(slot.set(&here));
  std::thread([&] {
    EXPECT_EQ(slot.get(), nullptr);
    EXPECT_TRUE(slot.set(&there));
    EXPECT_EQ(slot.get(), &there);
  }).join();
  EXPECT_EQ(slot.get(), &here);
  ASSERT_TRUE(slot.set(nullptr));
  EXPECT_EQ(slot.get(), nullptr);
}

TEST(ThreadSlotTest, WithoutAKeyNothingIsSet) {
  std::vector<pthread_key_t> taken;
  for (pthread_key_t key; pthread_key_create(&key, nullptr) == 0;) taken.push_back(key);
  {
    ThreadSlot<const int> none;
    const int value = 1;
    EXPECT_FALSE(none.set(&value));
    EXPECT_EQ(none.get(), nullptr);
  }
  for (const pthread_key_t key : taken) pthread_key_delete(key);
}

}  // namespace
}  // namespace lm
