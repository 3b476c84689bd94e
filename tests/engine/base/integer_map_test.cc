#include "engine/base/integer_map.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace lm {
namespace {

TEST(IntegerMapTest, IsAMap) {
  std::mt19937_64 dice(1);
  IntegerMap<int> map;
  std::map<uint64_t, int> model;
  EXPECT_EQ(map.Find(0), nullptr);
  for (int i = 0; i < 20000; ++i) {
    const uint64_t key = dice() % 5000 << (dice() % 3 * 20);
    EXPECT_EQ(map.Insert(key, i), model.emplace(key, i).second);
    if (i == 100) {
      map.Clear();
      model.clear();
    }
  }
  EXPECT_EQ(map.size(), model.size());
  for (const auto& [key, value] : model) {
    ASSERT_NE(map.Find(key), nullptr);
    EXPECT_EQ(*map.Find(key), value);
  }
  EXPECT_FALSE(map.Contains(uint64_t{1} << 63));
  map.Clear();
  EXPECT_EQ(map.size(), 0u);
  EXPECT_FALSE(map.Contains(model.begin()->first));
}

}  // namespace
}  // namespace lm
