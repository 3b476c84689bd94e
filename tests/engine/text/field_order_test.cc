#include "engine/text/chat/field_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/base/checkpoint.h"

namespace lm {
namespace {

using Rows = std::vector<PromptFields>;

FieldOrder::Plan BestOf(const Rows& rows) {
  FieldOrder order;
  for (const PromptFields& row : rows) order.Add(row);
  return order.Best();
}

// What has to be read, in the plainest way: the different beginnings themselves.
int64_t BytesToRead(const Rows& rows, const std::vector<std::string>& names) {
  int64_t bytes = 0;
  std::set<std::string> read;
  for (const PromptFields& row : rows) {
    std::string beginning;
    for (const std::string& name : names) {
      const auto field = std::find_if(row.begin(), row.end(),
                                      [&name](const PromptField& f) { return f.name == name; });
      if (field == row.end() || !field->value.has_value()) continue;
      beginning += absl::StrCat(LineOf(*field), "\n");
      if (read.insert(beginning).second) bytes += static_cast<int64_t>(LineOf(*field).size()) + 1;
    }
  }
  return bytes;
}

Rows RandomRows(std::mt19937& random, size_t num_rows, size_t num_fields) {
  std::vector<size_t> lengths, different;
  for (size_t f = 0; f < num_fields; ++f) {
    lengths.push_back(random() % 40);
    different.push_back(1 + random() % (f % 2 == 0 ? num_rows : 5));
  }
  Rows rows;
  for (size_t r = 0; r < num_rows; ++r) {
    PromptFields row;
    for (size_t f = 0; f < num_fields; ++f) {
      const std::string value = absl::StrCat(random() % different[f], std::string(lengths[f], 'x'));
      if (random() % 8 == 0) continue;
      row.push_back({absl::StrCat("f", f), value});
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

TEST(FieldOrderTest, RepeatedFieldsComeFirstThoughTheyAreShort) {
  Rows rows;
  for (int i = 0; i < 30; ++i) {
    rows.push_back({{"review", absl::StrCat("number ", i, " is of its own")},
                    {"shop", std::string("the only one")},
                    {"product", absl::StrCat("a long description of product ", i % 3)}});
  }
  const FieldOrder::Plan plan = BestOf(rows);
  EXPECT_EQ(plan.names, (std::vector<std::string>{"shop", "product", "review"}));
  EXPECT_EQ(plan.given_bytes, plan.bytes);  // nothing is shared behind the review
  EXPECT_EQ(plan.best_bytes, BytesToRead(rows, plan.names));
}

TEST(FieldOrderTest, IsTheBestOfAllOrders) {
  std::mt19937 random(1);
  for (int round = 0; round < 60; ++round) {
    const size_t num_fields = 1 + random() % 5;
    const Rows rows = RandomRows(random, 1 + random() % 40, num_fields);
    const FieldOrder::Plan plan = BestOf(rows);
    EXPECT_EQ(plan.best_bytes, BytesToRead(rows, plan.names));
    std::vector<std::string> names = plan.names;
    std::sort(names.begin(), names.end());
    do {
      EXPECT_LE(plan.best_bytes, BytesToRead(rows, names));
    } while (std::next_permutation(names.begin(), names.end()));
  }
}

TEST(FieldOrderTest, OfEqualOrdersItIsTheGivenOne) {
  Rows rows;
  for (int i = 0; i < 5; ++i) {
    rows.push_back({{"b", absl::StrCat(i)}, {"a", absl::StrCat(i)}, {"c", absl::StrCat(i)}});
  }
  EXPECT_EQ(BestOf(rows).names, (std::vector<std::string>{"b", "a", "c"}));
  EXPECT_TRUE(BestOf({}).names.empty());
}

TEST(FieldOrderTest, AnInterruptEndsIt) {
  std::mt19937 random(3);
  for (const size_t num_fields : {8u, 24u}) {  // all sets; greedily
    const Rows rows = RandomRows(random, 20'000, num_fields);
    FieldOrder order;
    for (const PromptFields& row : rows) order.Add(row);
    const CheckpointScope scope([] { return true; });
    std::this_thread::sleep_for(2 * kCheckpointInterval);
    const std::clock_t begin = std::clock();
    (void)order.Best();
    EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, 0.03) << num_fields;
    EXPECT_TRUE(absl::IsCancelled(Checkpoint()));
  }
}

// Too many for all sets: greedily, and never worse than as they were given.
TEST(FieldOrderTest, ManyFieldsAreOrderedGreedily) {
  std::mt19937 random(2);
  for (int round = 0; round < 5; ++round) {
    const Rows rows = RandomRows(random, 50, 24);
    const FieldOrder::Plan plan = BestOf(rows);
    EXPECT_EQ(plan.names.size(), 24u);
    EXPECT_EQ(plan.best_bytes, BytesToRead(rows, plan.names));
    EXPECT_LT(plan.best_bytes, plan.given_bytes);
  }
}

}  // namespace
}  // namespace lm
