#include "engine/runtime/memo_shelf.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/runtime/memo_key.h"

namespace lm {
namespace {

using Scan = std::shared_ptr<MemoScan>;

// Remembers rows by their numbers, so many bytes each.
class Rows {
 public:
  static constexpr int64_t kBytes = 100;
  static constexpr int kMost = 320;  // that there is room for

  // Whether the row is remembered; from now on it is.
  bool Ask(int row, const Scan& scan, int64_t bytes = kBytes) {
    const auto [place, is_new] = rows_.try_emplace(row);
    if (!is_new) {
      shelf_.Use(place->second.item, scan);
      return true;
    }
    place->second.key.prompt = std::to_string(row);
    MemoShelf::Items item = {{&place->second.key, bytes, scan}};
    place->second.item = item.begin();
    shelf_.Put(std::move(item));
    while (const MemoShelf::Item* gone = shelf_.NextToGo()) {
      const auto found = rows_.find(std::stoi(gone->key->prompt));
      shelf_.Remove(found->second.item);
      rows_.erase(found);
    }
    EXPECT_LE(shelf_.bytes(), shelf_.max_bytes());
    return false;
  }

  // How many of the rows [first, first + count) are remembered when they are asked for in order.
  int Find(int first, int count, const Scan& scan = std::make_shared<MemoScan>()) {
    int found = 0;
    for (int row = first; row < first + count; ++row) found += Ask(row, scan);
    return found;
  }

  const MemoShelf& shelf() const { return shelf_; }

 private:
  struct Row {
    MemoKey key;
    MemoShelf::Items::iterator item;
  };
  MemoShelf shelf_{kMost * kBytes};
  std::map<int, Row> rows_;
};

TEST(MemoShelfTest, WhatIsScannedTwiceIsFoundAsFarAsThereIsRoom) {
  for (const int count : {Rows::kMost / 2, Rows::kMost, Rows::kMost + 1, 2 * Rows::kMost, 3000}) {
    Rows rows;
    EXPECT_EQ(rows.Find(0, count), 0);
    const int found = rows.Find(0, count);
    EXPECT_GE(found, std::min(count, Rows::kMost - 1)) << count;
    EXPECT_GE(rows.Find(0, count), found * 3 / 4) << count;  // and once more
    EXPECT_GE(rows.Find(0, count), found * 3 / 4) << count;
  }
}

// As a join of a table with itself does.
TEST(MemoShelfTest, WhatOneScanAsksForAgainAndAgainIsFound) {
  Rows rows;
  const auto scan = std::make_shared<MemoScan>();
  rows.Find(0, 1000, scan);
  for (int i = 0; i < 5; ++i) EXPECT_GE(rows.Find(0, 1000, scan), Rows::kMost * 7 / 8 - 1);
}

// A statement for each row finds what was prepared for all of them.
TEST(MemoShelfTest, SingleRowsFindWhatOneScanLeft) {
  Rows rows;
  rows.Find(0, 1000);
  int found = 0;
  for (int row = 0; row < 1000; ++row) found += rows.Find(row, 1);
  EXPECT_GE(found, Rows::kMost * 7 / 8);
}

// Where each row that is missing pushed out the next one, none would be found.
TEST(MemoShelfTest, ARowThatIsMissingCostsNoOther) {
  Rows rows;
  rows.Find(0, 1000);
  for (int other = 0; other < 10; ++other) rows.Find(10'000 + other, 1);
  EXPECT_GE(rows.Find(0, 1000), Rows::kMost - 20);
}

TEST(MemoShelfTest, NothingStaysForEver) {
  Rows rows;
  rows.Find(0, 1000);
  rows.Find(0, 1000);
  EXPECT_EQ(rows.Find(2000, Rows::kMost), 0);
  EXPECT_EQ(rows.Find(2000, Rows::kMost), Rows::kMost);
  EXPECT_EQ(rows.Find(0, 1000), 0);
}

TEST(MemoShelfTest, WhatIsUsedAllTheTimeStaysAndWhatCameLastToo) {
  for (const Scan& scan : {Scan(), std::make_shared<MemoScan>()}) {
    Rows rows;
    for (int row = 0; row < 1000; ++row) {
      rows.Ask(row, scan);
      ASSERT_EQ(rows.Ask(5000, scan), row > 0);
      ASSERT_EQ(rows.Ask(std::max(row - 10, 0), scan), true);
    }
  }
}

TEST(MemoShelfTest, AnItemOfAlmostAllBytesIsTaken) {
  Rows rows;
  const int64_t most = rows.shelf().max_bytes();
  EXPECT_FALSE(rows.shelf().Fits(most));
  EXPECT_TRUE(rows.shelf().Fits(most * 7 / 8));
  rows.Find(0, 1000);
  rows.Ask(2000, nullptr, most * 7 / 8);
  EXPECT_TRUE(rows.Ask(2000, nullptr));
}

// Whatever has come before, from whomever.
TEST(MemoShelfTest, AScanThatFitsIsFoundWhole) {
  std::mt19937 random(20261128);
  const auto number = [&random](int most) { return static_cast<int>(random() % most); };
  for (int trial = 0; trial < 200; ++trial) {
    Rows rows;
    std::vector<Scan> scans = {nullptr};
    for (int i = 0; i < 4; ++i) scans.push_back(std::make_shared<MemoScan>());
    for (int i = number(20); i > 0; --i) {
      const Scan& scan = scans[number(static_cast<int>(scans.size()))];
      const int first = number(5) * 100;
      for (int row = first + number(600); row >= first; --row) {
        rows.Ask(row, scan, Rows::kBytes / 2 + number(100));
      }
    }
    const int count = 1 + number(Rows::kMost);
    rows.Find(10'000, count);
    EXPECT_EQ(rows.Find(10'000, count), count) << trial;
  }
}

}  // namespace
}  // namespace lm
