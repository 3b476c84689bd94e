#include "engine/cache/kv_block_pool.h"

#include <gtest/gtest.h>

#include <set>

namespace lm {
namespace {

TEST(KvBlockPoolTest, HandsOutEachBlockOnce) {
  KvBlockPool pool(5);
  std::set<int32_t> blocks;
  while (std::optional<int32_t> block = pool.Allocate()) blocks.insert(*block);
  EXPECT_EQ(blocks, (std::set<int32_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(pool.num_free(), 0);
  EXPECT_TRUE(pool.CheckIntegrity().ok());
}

TEST(KvBlockPoolTest, TheLastReferenceFrees) {
  KvBlockPool pool(1);
  const int32_t block = *pool.Allocate();
  pool.Ref(block);
  pool.Unref(block);
  EXPECT_EQ(pool.num_free(), 0);
  EXPECT_EQ(pool.Allocate(), std::nullopt);
  pool.Unref(block);
  EXPECT_EQ(pool.num_free(), 1);
  EXPECT_EQ(pool.Allocate(), block);
}

TEST(KvBlockPoolTest, APoolOfNothingGivesNothing) {
  KvBlockPool pool(0);
  EXPECT_EQ(pool.Allocate(), std::nullopt);
  EXPECT_TRUE(pool.CheckIntegrity().ok());
}

}  // namespace
}  // namespace lm
