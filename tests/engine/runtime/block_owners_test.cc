#include "engine/runtime/block_owners.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"

namespace lm {
namespace {

TEST(BlockOwnersTest, ABlockIsItsLastOwners) {
  BlockOwners owners({.classes = {{.num_blocks = 2}, {.num_blocks = 1}}});
  EXPECT_FALSE(owners.HoldsAnothers(0, 1, "a"));
  owners.Give(0, 1, "a");
  EXPECT_FALSE(owners.HoldsAnothers(0, 1, "a"));
  EXPECT_TRUE(owners.HoldsAnothers(0, 1, ""));  // a salt like others
  EXPECT_FALSE(owners.HoldsAnothers(0, 0, "b"));
  EXPECT_FALSE(owners.HoldsAnothers(1, 0, "b"));
  owners.Give(0, 1, "b");
  EXPECT_TRUE(owners.HoldsAnothers(0, 1, "a"));
  owners.Distrust();
  EXPECT_TRUE(owners.HoldsAnothers(0, 1, "b"));
  EXPECT_TRUE(owners.HoldsAnothers(0, 0, "b"));
  owners.Give(0, 1, "b");
  EXPECT_FALSE(owners.HoldsAnothers(0, 1, "b"));
}

// Against a map. What is known of salts is that of those that have a block.
TEST(BlockOwnersTest, SaltsAreKnownAsLongAsTheyHaveABlock) {
  constexpr int32_t kBlocks = 20;
  BlockOwners owners({.classes = {{.num_blocks = kBlocks}}});
  std::map<int32_t, std::string> model;
  std::mt19937 random(1);
  for (int i = 0; i < 5000; ++i) {
    if (i == 2500) {
      owners.Distrust();
      for (int32_t block = 0; block < kBlocks; ++block) model[block] = "?";
    }
    const int32_t block = static_cast<int32_t>(random() % kBlocks);
    const std::string salt = absl::StrCat("salt ", random() % 40 * (i / 1000));
    const auto known = model.find(block);
    ASSERT_EQ(owners.HoldsAnothers(0, block, salt), known != model.end() && known->second != salt);
    owners.Give(0, block, salt);
    model[block] = salt;
    std::set<std::string> salts;
    for (const auto& [_, owner] : model) {
      if (owner != "?") salts.insert(owner);
    }
    ASSERT_EQ(owners.num_salts(), salts.size());
  }
}

}  // namespace
}  // namespace lm
