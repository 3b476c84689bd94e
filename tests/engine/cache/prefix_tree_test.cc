#include "engine/cache/prefix_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "absl/time/clock.h"

namespace lm {
namespace {

constexpr int32_t kBlock = 4;

std::vector<int32_t> Tokens(const std::string& text) { return {text.begin(), text.end()}; }

class PrefixTreeTest : public testing::Test {
 protected:
  // Inserts as a sequence does: takes blocks, hands them to the tree, drops its own references.
  PrefixTree::Lease Insert(const std::string& salt, const std::string& text) {
    std::vector<int32_t> blocks;
    for (size_t at = 0; at < text.size(); at += kBlock) blocks.push_back(pool_.Allocate().value());
    PrefixTree::Lease lease = tree_.Insert(salt, Tokens(text), blocks);
    for (int32_t block : blocks) pool_.Unref(block);
    return lease;
  }
  int64_t Length(const std::string& salt, const std::string& text) {
    return tree_.MatchLength(salt, Tokens(text));
  }
  void ExpectIntegrity() {
    const absl::Status status = tree_.CheckIntegrity();
    ASSERT_TRUE(status.ok()) << status;
  }

  KvBlockPool pool_{100};
  PrefixTree tree_{&pool_, kBlock};
};

TEST_F(PrefixTreeTest, FindsTheLongestPrefix) {
  Insert("", "abcdefghij");
  EXPECT_EQ(Length("", "abcdefghij"), 10);
  EXPECT_EQ(Length("", "abcdefghijk"), 10);
  EXPECT_EQ(Length("", "abcdefgX"), 7);
  EXPECT_EQ(Length("", "ab"), 2);
  EXPECT_EQ(Length("", "Xbcd"), 0);
  EXPECT_EQ(Length("", ""), 0);
  const PrefixTree::Lease lease = tree_.Match("", Tokens("abcdefghij"), 9);
  EXPECT_EQ(lease.tokens(), 9);
  EXPECT_EQ(lease.blocks().size(), 3u);
  ExpectIntegrity();
}

TEST_F(PrefixTreeTest, AdaptersOfASaltDoNotSeeEachOtherAndGoTogether) {
  auto insert = [this](PrefixOwner owner, const std::string& text) {
    std::vector<int32_t> blocks;
    for (size_t at = 0; at < text.size(); at += kBlock) blocks.push_back(pool_.Allocate().value());
    { tree_.Insert(owner, Tokens(text), blocks); }
    for (int32_t block : blocks) pool_.Unref(block);
  };
  insert({"mine", "a"}, "abcdefgh");
  insert({"mine", "b"}, "abcdefghijkl");
  insert("mine", "abcd");
  EXPECT_EQ(tree_.MatchLength({"mine", "a"}, Tokens("abcdefghijkl")), 8);
  EXPECT_EQ(tree_.MatchLength({"mine", "b"}, Tokens("abcdefghijkl")), 12);
  EXPECT_EQ(tree_.MatchLength({"mine", "c"}, Tokens("abcdefghijkl")), 0);
  EXPECT_EQ(tree_.MatchLength({"yours", "a"}, Tokens("abcdefghijkl")), 0);
  EXPECT_EQ(Length("mine", "abcdefghijkl"), 4);
  ExpectIntegrity();
  const std::vector<PrefixTree::Run> runs = tree_.Runs("mine");
  ASSERT_EQ(runs.size(), 3u);
  EXPECT_EQ(runs[0].adapters, "");
  EXPECT_EQ(runs[2].adapters, "b");
  // They are one salt: what it has more than another goes first, the oldest of all its trees.
  insert({"yours", "a"}, "abcdefghijkl");
  EXPECT_EQ(tree_.Evict(3), 3);
  EXPECT_EQ(tree_.MatchLength({"yours", "a"}, Tokens("abcdefghijkl")), 12);
  EXPECT_EQ(tree_.MatchLength({"mine", "a"}, Tokens("abcdefgh")), 0);
  ExpectIntegrity();
  EXPECT_EQ(tree_.Evict(100), 6);
  EXPECT_TRUE(tree_.Runs("mine").empty());
  ExpectIntegrity();
}

TEST_F(PrefixTreeTest, SaltsDoNotSeeEachOther) {
  Insert("mine", "abcdefgh");
  EXPECT_EQ(Length("mine", "abcdefgh"), 8);
  EXPECT_EQ(Length("yours", "abcdefgh"), 0);
  EXPECT_EQ(Length("", "abcdefgh"), 0);
}

TEST_F(PrefixTreeTest, KeepsItsOwnBlockForAKnownRun) {
  Insert("", "abcdefgh");
  const int32_t free = pool_.num_free();
  const PrefixTree::Lease first = tree_.Match("", Tokens("abcdefgh"), 8);
  const PrefixTree::Lease again = Insert("", "abcdefgh");
  EXPECT_EQ(first.blocks(), again.blocks());
  EXPECT_EQ(pool_.num_free(), free);
  EXPECT_EQ(tree_.num_nodes(), 2);
}

TEST_F(PrefixTreeTest, AShortRunGrowsInPlace) {
  const int32_t block = *pool_.Allocate();
  {
    const PrefixTree::Lease pinned = tree_.Insert("", Tokens("ab"), {block});
    tree_.Insert("", Tokens("abc"), {block});  // the same block, written further: although pinned
    EXPECT_EQ(tree_.num_nodes(), 1);
    EXPECT_EQ(pinned.tokens(), 2);
  }
  EXPECT_EQ(Length("", "abcd"), 3);
  Insert("", "abcd");  // another block; nobody looks at the old one
  EXPECT_EQ(tree_.num_nodes(), 1);
  EXPECT_EQ(pool_.references(block), 1);
  pool_.Unref(block);
  ExpectIntegrity();
}

TEST_F(PrefixTreeTest, APinnedShortRunStaysBesideTheLongerOne) {
  const PrefixTree::Lease pinned = Insert("", "ab");
  Insert("", "abcd");
  EXPECT_EQ(tree_.num_nodes(), 2);
  EXPECT_EQ(Length("", "abcd"), 4);
  ExpectIntegrity();
}

TEST_F(PrefixTreeTest, EvictsTheOldestUnpinnedLeaf) {
  Insert("", "aaaa");
  Insert("", "bbbb");
  Insert("", "cccc");
  tree_.Match("", Tokens("aaaa"), 4);  // now b is the oldest
  EXPECT_EQ(tree_.Evict(1), 1);
  EXPECT_EQ(Length("", "aaaa"), 4);
  EXPECT_EQ(Length("", "bbbb"), 0);
  EXPECT_EQ(Length("", "cccc"), 4);
  ExpectIntegrity();
}

TEST_F(PrefixTreeTest, EvictsFromTheSaltThatHasTheMost) {
  Insert("small", "aaaa");  // the oldest
  Insert("large", "bbbb");
  Insert("large", "cccc");
  EXPECT_EQ(tree_.Evict(1), 1);
  EXPECT_EQ(Length("small", "aaaa"), 4);
  EXPECT_EQ(Length("large", "bbbb"), 0);
  ExpectIntegrity();
}

// Of databases in memory that were closed one after the other, say.
TEST_F(PrefixTreeTest, WhatIsForgottenGoesFirst) {
  Insert("gone", "aaaa");
  Insert("large", "bbbbccccddddeeeeffff");
  PrefixTree::Lease held = Insert("held", "gggghhhh");
  tree_.Forget("gone");
  tree_.Forget("gone");
  tree_.Forget("held");
  tree_.Forget("never there");
  EXPECT_TRUE(tree_.CheckIntegrity().ok()) << tree_.CheckIntegrity();
  EXPECT_EQ(Length("gone", "aaaa"), 4);  // as long as there is room
  EXPECT_EQ(tree_.Evict(1), 1);
  EXPECT_EQ(Length("gone", "aaaa"), 0);
  EXPECT_EQ(Length("held", "gggghhhh"), 8);
  EXPECT_EQ(Length("large", "bbbbccccddddeeeeffff"), 20);
  held = {};
  Insert("held", "gggghhhhiiii");
  EXPECT_EQ(tree_.Evict(3), 3);  // with what a request inserted that was still under way
  EXPECT_EQ(Length("held", "gggghhhhiiii"), 0);
  EXPECT_EQ(Length("large", "bbbbccccddddeeeeffff"), 20);
  EXPECT_TRUE(tree_.CheckIntegrity().ok()) << tree_.CheckIntegrity();
  Insert("held", "gggg");  // another one of that name is a salt as any
  Insert("large", "bbbbccccddddeeeeffff");
  EXPECT_EQ(tree_.Evict(1), 1);
  EXPECT_EQ(Length("held", "gggg"), 4);
}

TEST_F(PrefixTreeTest, ASaltAloneMayHaveEverything) {
  for (char c = 'A'; c < 'A' + 100 / 2; ++c) Insert("", std::string(2 * kBlock, c));
  EXPECT_EQ(pool_.num_free(), 0);
  EXPECT_EQ(tree_.num_nodes(), 100);
}

TEST_F(PrefixTreeTest, WhatIsPinnedMakesASaltLargeButStays) {
  const PrefixTree::Lease pinned = Insert("large", "aaaabbbbcccc");
  Insert("small", "dddd");
  EXPECT_EQ(tree_.Evict(1), 1);  // there is nothing else
  EXPECT_EQ(Length("large", "aaaabbbbcccc"), 12);
  EXPECT_EQ(Length("small", "dddd"), 0);
  ExpectIntegrity();
}

// However much some ask for, each of n salts keeps an n-th; checked against what each had before.
TEST_F(PrefixTreeTest, RandomFloodsLeaveEachSaltItsShare) {
  const std::vector<std::string> salts = {"a", "b", "c", "d"};
  for (int seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    KvBlockPool pool(40);
    PrefixTree tree(&pool, kBlock);
    auto sizes = [&] {
      std::map<std::string, int64_t> sizes;
      for (const std::string& salt : salts) {
        for (const PrefixTree::Run& run : tree.Runs(salt)) sizes[salt] += run.blocks;
      }
      return sizes;
    };
    for (int op = 0; op < 600; ++op) {
      // One floods, by turns; the others ask now and then.
      const std::string& salt = salts[random() % 10 == 0 ? random() % 4 : op / 150];
      std::string text(kBlock * (1 + random() % 4), ' ');
      for (char& c : text) c = static_cast<char>('a' + random() % 3);
      std::vector<int32_t> blocks;
      for (size_t at = 0; at < text.size(); at += kBlock) {
        if (pool.num_free() == 0) {
          std::map<std::string, int64_t> before = sizes();
          ASSERT_EQ(tree.Evict(1), 1);
          int64_t most = 0;
          for (const auto& [unused, size] : before) most = std::max(most, size);
          for (const auto& [other, size] : sizes()) {
            EXPECT_TRUE(size == before[other] || before[other] == most) << other;
            before.erase(other);
          }
          for (const auto& [gone, size] : before) EXPECT_EQ(size, most) << gone;
        }
        blocks.push_back(pool.Allocate().value());
      }
      tree.Insert(salt, Tokens(text), blocks);
      for (int32_t block : blocks) pool.Unref(block);
      const absl::Status status = tree.CheckIntegrity();
      ASSERT_TRUE(status.ok()) << status << " seed " << seed << " op " << op;
    }
  }
}

TEST_F(PrefixTreeTest, ALeaseKeepsItsNodesAndTheirAncestors) {
  Insert("", "abcdefghijkl");
  PrefixTree::Lease lease = tree_.Match("", Tokens("abcdefgX"), 8);
  EXPECT_EQ(lease.tokens(), 7);
  EXPECT_EQ(tree_.num_evictable(), 1);
  EXPECT_EQ(tree_.Evict(100), 1);
  EXPECT_EQ(tree_.num_nodes(), 2);
  lease.Truncate(4);
  EXPECT_EQ(lease.blocks().size(), 1u);
  EXPECT_EQ(tree_.Evict(100), 1);
  lease = {};
  EXPECT_EQ(tree_.Evict(100), 1);
  EXPECT_EQ(pool_.num_free(), pool_.num_blocks());
  ExpectIntegrity();
}

TEST_F(PrefixTreeTest, DoesNotEvictWhatFreesNothing) {
  const int32_t block = *pool_.Allocate();
  tree_.Insert("", Tokens("ab"), {block});
  EXPECT_EQ(tree_.Evict(1), 0);
  EXPECT_EQ(Length("", "ab"), 2);
  pool_.Unref(block);
  EXPECT_EQ(tree_.Evict(1), 1);
  EXPECT_EQ(Length("", "ab"), 0);
}

TEST_F(PrefixTreeTest, AMovedLeaseUnpinsOnce) {
  PrefixTree::Lease a = Insert("", "abcd");
  PrefixTree::Lease b = std::move(a);
  a = {};
  EXPECT_EQ(tree_.Evict(1), 0);
  b = std::move(a);
  EXPECT_EQ(tree_.Evict(1), 1);
}

TEST_F(PrefixTreeTest, DeepTreesNeedNoDeepStack) {
  KvBlockPool pool(200000);
  PrefixTree tree(&pool, 1);
  std::vector<int32_t> tokens(200000, 7), blocks;
  while (std::optional<int32_t> block = pool.Allocate()) blocks.push_back(*block);
  tree.Insert("", tokens, blocks);
  for (int32_t block : blocks) pool.Unref(block);
  EXPECT_EQ(tree.MatchLength("", tokens), 200000);
}

// The same answers as a list of strings: everything inserted and not evicted matches. Until memory
// is short nothing is evicted, so the expected length is exact; afterwards it is an upper bound,
// and what is pinned must still be there.
TEST_F(PrefixTreeTest, RandomWorkloadAgreesWithAListOfStrings) {
  for (int seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    const int32_t num_blocks = seed % 2 == 0 ? 4000 : 24;
    KvBlockPool pool(num_blocks);
    PrefixTree tree(&pool, kBlock);
    std::map<std::string, std::vector<std::string>> inserted;
    struct Pinned {
      std::string salt, text;
      PrefixTree::Lease lease;
    };
    std::list<Pinned> pinned;
    bool evicted = false;
    auto allocate = [&]() -> std::optional<int32_t> {
      if (pool.num_free() == 0) evicted |= tree.Evict(1 + random() % 3) > 0;
      return pool.Allocate();
    };
    for (int op = 0; op < 400; ++op) {
      const std::string salt(1, "xyz"[random() % 3]);
      std::string text(1 + random() % 18, ' ');
      for (char& c : text) c = "ab"[random() % 5 == 0];
      if (random() % 2 == 0) {
        std::vector<int32_t> blocks;
        for (size_t at = 0; at < text.size(); at += kBlock) {
          const std::optional<int32_t> block = allocate();
          if (!block) break;
          blocks.push_back(*block);
        }
        const size_t held = std::min(text.size(), blocks.size() * kBlock);
        const PrefixTree::Lease lease = tree.Insert(salt, Tokens(text.substr(0, held)), blocks);
        EXPECT_EQ(lease.tokens(), static_cast<int64_t>(held));
        if (held > 0) inserted[salt].push_back(text.substr(0, held));
        for (int32_t block : blocks) pool.Unref(block);
      } else {
        const int64_t limit = random() % (text.size() + 1);
        PrefixTree::Lease lease = tree.Match(salt, Tokens(text), limit);
        int64_t expected = 0;
        for (const std::string& known : inserted[salt]) {
          const auto parting = std::mismatch(text.begin(), text.end(), known.begin(), known.end());
          expected = std::max<int64_t>(expected, parting.first - text.begin());
        }
        expected = std::min(expected, limit);
        if (evicted) {
          EXPECT_LE(lease.tokens(), expected);
        } else {
          EXPECT_EQ(lease.tokens(), expected) << salt << " " << text;
        }
        EXPECT_EQ(lease.blocks().size(), (lease.tokens() + kBlock - 1u) / kBlock);
        if (random() % 3 == 0) pinned.push_back({salt, text, std::move(lease)});
      }
      if (pinned.size() > 3) pinned.pop_front();
      if (!pinned.empty() && random() % 4 == 0) {
        PrefixTree::Lease& lease = pinned.back().lease;
        lease.Truncate(random() % (lease.tokens() + 1));
      }
      for (const Pinned& p : pinned) {
        EXPECT_GE(tree.MatchLength(p.salt, Tokens(p.text)), p.lease.tokens());
      }
      const absl::Status status = tree.CheckIntegrity();
      ASSERT_TRUE(status.ok()) << status << " seed " << seed << " op " << op;
      ASSERT_EQ(pool.num_free() + tree.num_nodes(), pool.num_blocks());
    }
    EXPECT_EQ(evicted, num_blocks == 24);
    pinned.clear();
    tree.Evict(num_blocks);
    EXPECT_EQ(pool.num_free(), num_blocks);
    EXPECT_EQ(tree.num_nodes(), 0);
  }
}

TEST_F(PrefixTreeTest, RunsAreThePartsThatDoNotFork) {
  EXPECT_TRUE(tree_.Runs("").empty());
  Insert("", "abcdefghijklmn");
  Insert("", "abcdefghXY");
  Insert("other", "secret");
  const absl::Time before = absl::Now();
  tree_.Match("", Tokens("abcdefghijkl"), 12).CountHit();
  tree_.Match("", Tokens("abcdefghijkl"), 12);  // and does not come to use it
  const std::vector<PrefixTree::Run> runs = tree_.Runs("");
  ASSERT_EQ(runs.size(), 3u);
  // abcd efgh, then XY or ijkl mn.
  EXPECT_EQ(runs[0].parent, -1);
  EXPECT_EQ(runs[0].tokens, 8);
  EXPECT_EQ(runs[0].own_tokens, 8);
  EXPECT_EQ(runs[0].blocks, 2);
  EXPECT_EQ(runs[0].hits, 1);
  EXPECT_EQ(runs[0].beginning, Tokens("abcdefgh"));
  EXPECT_GE(runs[0].last_used, before);
  EXPECT_EQ(runs[1].parent, 0);
  EXPECT_EQ(runs[1].tokens, 10);
  EXPECT_EQ(runs[1].own_tokens, 2);
  EXPECT_EQ(runs[1].hits, 0);
  EXPECT_LE(runs[1].last_used, before);
  EXPECT_EQ(runs[2].parent, 0);
  EXPECT_EQ(runs[2].tokens, 14);
  EXPECT_EQ(runs[2].own_tokens, 6);
  EXPECT_EQ(runs[2].blocks, 2);
  EXPECT_EQ(runs[2].hits, 1);
  EXPECT_EQ(runs[2].beginning, Tokens("ijklmn"));
}

TEST_F(PrefixTreeTest, ALongRunShowsItsBeginning) {
  const std::string text(4 * PrefixTree::Run::kShownTokens + 1, 'a');
  Insert("", text);
  const std::vector<PrefixTree::Run> runs = tree_.Runs("");
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].own_tokens, static_cast<int64_t>(text.size()));
  EXPECT_EQ(runs[0].beginning.size(), PrefixTree::Run::kShownTokens);
}

// A model with a window of 6 tokens, and with states.
class RichPrefixTreeTest : public testing::Test {
 protected:
  // As a sequence would: with a block of both classes for each run, and maybe a snapshot at the
  // end.
  PrefixTree::Lease Insert(PrefixTree* tree, const std::string& text, bool snapshot = false,
                           const std::string& salt = "") {
    std::vector<int32_t> blocks;
    std::vector<std::vector<int32_t>> windowed(1);
    for (size_t at = 0; at < text.size(); at += kBlock) {
      blocks.push_back(pool_.Allocate().value());
      windowed[0].push_back(windowed_.Allocate().value());
    }
    const int32_t state = snapshot ? states_.Allocate().value() : -1;
    PrefixTree::Lease lease =
        tree->Insert(salt, Tokens(text), blocks, {.windowed = windowed, .state = state});
    for (int32_t block : blocks) pool_.Unref(block);
    for (int32_t block : windowed[0]) windowed_.Unref(block);
    if (snapshot) states_.Unref(state);
    EXPECT_TRUE(tree->CheckIntegrity().ok()) << tree->CheckIntegrity();
    return lease;
  }

  KvBlockPool pool_{100}, windowed_{100}, states_{10};
  PrefixTree windows_{&pool_, kBlock, {{&windowed_, 6}}};
  PrefixTree recurrent_{&pool_, kBlock, {{&windowed_, 6}}, &states_};
};

TEST_F(RichPrefixTreeTest, AMatchEndsWhereItsWindowIsThere) {
  const std::string text = "abcdefghijklmnopqrst";  // five runs
  Insert(&windows_, text);
  {
    const PrefixTree::Lease all = windows_.Match("", Tokens(text), 20);
    EXPECT_EQ(all.tokens(), 20);
    // The next token, at 20, sees 15 and what follows it.
    EXPECT_EQ(all.windowed(0)[2], -1);
    EXPECT_GE(all.windowed(0)[3], 0);
    EXPECT_GE(all.windowed(0)[4], 0);
  }
  // The three that this match did not see are the oldest.
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(windows_.EvictWindowed(0));
  EXPECT_EQ(windows_.num_windowed(0), 2);
  EXPECT_EQ(windows_.MatchLength("", Tokens(text)), 20);
  EXPECT_EQ(windows_.MatchLength("", Tokens("abcdefghijklmnopqrXX")), 18);
  EXPECT_EQ(windows_.MatchLength("", Tokens("abcdefghijklmnopXXXX")), 0);  // 16 sees 11
  EXPECT_EQ(windows_.MatchLength("", Tokens("abcd")), 0);
  EXPECT_EQ(windows_.Match("", Tokens("abcdefghijklmnopXXXX"), 20).known(), 16);
  // Computed again, they are there again; the tree keeps its own of the rest.
  Insert(&windows_, text.substr(0, 16));
  EXPECT_EQ(windows_.MatchLength("", Tokens("abcdefghijklmnopXXXX")), 16);
  EXPECT_EQ(windows_.num_windowed(0), 5);
  EXPECT_EQ(windows_.num_nodes(), 5);
}

// It has a part of the run, and its owner may go on to write something else behind that.
TEST_F(RichPrefixTreeTest, TheWindowedBlockOfAShorterRunIsNotThatOfALongerOne) {
  Insert(&windows_, "abcdefgh");
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(windows_.EvictWindowed(0));
  Insert(&windows_, "abcdef");
  EXPECT_EQ(windows_.num_windowed(0), 1);  // of "abcd"
  EXPECT_EQ(windows_.MatchLength("", Tokens("abcdefgh")), 4);
  Insert(&windows_, "abcdefgh");
  EXPECT_EQ(windows_.MatchLength("", Tokens("abcdefgh")), 8);
}

TEST_F(RichPrefixTreeTest, AWindowedBlockThatASequenceHoldsStays) {
  Insert(&windows_, "abcdefgh");
  const PrefixTree::Lease lease = windows_.Match("", Tokens("abcdefgh"), 8);
  for (int32_t block : lease.windowed(0)) windowed_.Ref(block);
  EXPECT_FALSE(windows_.EvictWindowed(0));
  for (int32_t block : lease.windowed(0)) windowed_.Unref(block);
  EXPECT_TRUE(windows_.EvictWindowed(0));
}

// It was evicted, and is computed again: it is as new as what was computed last.
TEST_F(RichPrefixTreeTest, AWindowedBlockThatComesAgainIsNotTheOldest) {
  Insert(&windows_, "aaaaaaaa");
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(windows_.EvictWindowed(0));
  Insert(&windows_, "bbbb");
  Insert(&windows_, "aaaaaaaa");
  ASSERT_TRUE(windows_.EvictWindowed(0));
  EXPECT_EQ(windows_.MatchLength("", Tokens("bbbb")), 0);
  EXPECT_EQ(windows_.MatchLength("", Tokens("aaaaaaaa")), 8);
}

TEST_F(RichPrefixTreeTest, WindowedBlocksAndSnapshotsAreSharedOutByThemselves) {
  Insert(&recurrent_, "aaaabbbbccccddddeeee", /*snapshot=*/true, "long");
  for (const char* text : {"pppp", "qqqq", "rrrr"}) {
    Insert(&recurrent_, text, /*snapshot=*/true, "short");
  }
  ASSERT_TRUE(recurrent_.EvictState());  // of the three, although these have fewer blocks
  EXPECT_EQ(recurrent_.MatchLength("long", Tokens("aaaabbbbccccddddeeee")), 20);
  EXPECT_EQ(recurrent_.MatchLength("short", Tokens("pppp")), 0);
  recurrent_.Match("long", Tokens("aaaabbbbccccddddeeee"), 20);  // sees the last three of five
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(recurrent_.EvictWindowed(0));
  EXPECT_EQ(recurrent_.MatchLength("short", Tokens("qqqq")), 4);
  EXPECT_EQ(recurrent_.MatchLength("long", Tokens("aaaabbbbccccddddeeee")), 20);
  // It has three of them left, and the others now five.
  for (const char* text : {"ssss", "tttt"}) Insert(&recurrent_, text, /*snapshot=*/true, "short");
  ASSERT_TRUE(recurrent_.EvictWindowed(0));
  EXPECT_EQ(recurrent_.MatchLength("short", Tokens("rrrr")), 4);
  EXPECT_EQ(recurrent_.num_windowed(0), 7);
  recurrent_.Forget("long");
  EXPECT_TRUE(recurrent_.CheckIntegrity().ok()) << recurrent_.CheckIntegrity();
  ASSERT_TRUE(recurrent_.EvictState());
  EXPECT_EQ(recurrent_.MatchLength("long", Tokens("aaaabbbbccccddddeeee")), 0);
}

TEST_F(RichPrefixTreeTest, ASnapshotThatSomebodyHoldsStays) {
  Insert(&recurrent_, "aaaaaa", /*snapshot=*/true);
  const PrefixTree::Lease lease = recurrent_.Match("", Tokens("aaaaaa"), 6);
  states_.Ref(lease.state());  // until it has been copied
  EXPECT_FALSE(recurrent_.EvictState());
  EXPECT_EQ(recurrent_.MatchLength("", Tokens("aaaaaa")), 6);
  states_.Unref(lease.state());
  EXPECT_FALSE(recurrent_.EvictState(/*before=*/recurrent_.clock()));
  EXPECT_TRUE(recurrent_.EvictState());
}

TEST_F(RichPrefixTreeTest, ARecurrentMatchEndsAtASnapshot) {
  Insert(&recurrent_, "abcdefghij");
  EXPECT_EQ(recurrent_.MatchLength("", Tokens("abcdefghij")), 0);
  EXPECT_EQ(recurrent_.Match("", Tokens("abcdefghXX"), 10).known(), 8);
  Insert(&recurrent_, "abcdef", /*snapshot=*/true);
  // A short run beside the longer one, which it does not replace, and the other way round.
  EXPECT_EQ(recurrent_.num_nodes(), 4);
  EXPECT_EQ(recurrent_.num_states(), 1);
  EXPECT_EQ(recurrent_.MatchLength("", Tokens("abcdefghij")), 6);
  EXPECT_EQ(recurrent_.MatchLength("", Tokens("abcdefXX")), 6);
  EXPECT_EQ(recurrent_.MatchLength("", Tokens("abcdeXXX")), 0);
  Insert(&recurrent_, "abcdefgXYZ");
  Insert(&recurrent_, "abcdefg000");
  EXPECT_EQ(recurrent_.MatchLength("", Tokens("abcdefgXYZ")), 6);
  EXPECT_EQ(recurrent_.MatchLength("", Tokens("abcdefg")), 6);
  Insert(&recurrent_, "abcdefgh", /*snapshot=*/true);  // of a run that is known
  EXPECT_EQ(recurrent_.MatchLength("", Tokens("abcdefghij")), 8);
  EXPECT_EQ(recurrent_.MatchLength("", Tokens("abcdefg")), 6);
  const PrefixTree::Lease lease = recurrent_.Match("", Tokens("abcdefghij"), 7);
  EXPECT_EQ(lease.tokens(), 6);
  EXPECT_GE(lease.state(), 0);
  EXPECT_EQ(lease.blocks().size(), 2u);
}

TEST_F(RichPrefixTreeTest, TheOldestSnapshotGoesFirst) {
  for (const char* text : {"aaaaaa", "bbbbbb", "cccccc"}) {
    Insert(&recurrent_, text, /*snapshot=*/true);
  }
  recurrent_.Match("", Tokens("aaaaaa"), 6);
  EXPECT_TRUE(recurrent_.EvictState());
  EXPECT_EQ(recurrent_.MatchLength("", Tokens("bbbbbb")), 0);
  EXPECT_EQ(recurrent_.MatchLength("", Tokens("aaaaaa")), 6);
  recurrent_.ForgetStates();
  EXPECT_EQ(states_.num_free(), 10);
  EXPECT_FALSE(recurrent_.EvictState());
  EXPECT_TRUE(recurrent_.CheckIntegrity().ok());
}

TEST_F(RichPrefixTreeTest, WhatALeafHasGoesWithIt) {
  Insert(&recurrent_, "abcdef", /*snapshot=*/true);
  Insert(&recurrent_, "abcdefgh");
  EXPECT_GT(recurrent_.Evict(100), 0);
  EXPECT_EQ(recurrent_.num_nodes(), 0);
  EXPECT_EQ(pool_.num_free(), 100);
  EXPECT_EQ(windowed_.num_free(), 100);
  EXPECT_EQ(states_.num_free(), 10);
}

}  // namespace
}  // namespace lm
