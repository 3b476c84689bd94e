#include "engine/text/symbol_merger.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>

namespace lm {
namespace {

using Rules = std::map<std::pair<int32_t, int32_t>, Merge>;

// The definition: look for the best pair, the leftmost among equals; merge; begin again.
std::vector<int32_t> MergeSlowly(std::vector<int32_t> ids, const Rules& rules) {
  for (;;) {
    size_t best = ids.size();
    Merge merge{};
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      auto it = rules.find({ids[i], ids[i + 1]});
      if (it == rules.end()) continue;
      if (best == ids.size() || it->second.priority < merge.priority) {
        best = i;
        merge = it->second;
      }
    }
    if (best == ids.size()) return ids;
    ids[best] = merge.id;
    ids.erase(ids.begin() + best + 1);
  }
}

std::vector<int32_t> MergeFast(const std::vector<int32_t>& ids, const Rules& rules,
                               SymbolMerger* merger) {
  GrowingArray<Symbol>& symbols = merger->symbols();
  symbols.clear();
  for (size_t i = 0; i < ids.size(); ++i) {
    symbols.push_back({static_cast<uint32_t>(i), 1, -1, -1, ids[i]});
  }
  merger->Run([&](const Symbol& left, const Symbol& right, Merge* merge) {
    auto it = rules.find({left.id, right.id});
    if (it == rules.end()) return false;
    *merge = it->second;
    return true;
  });
  std::vector<int32_t> merged;
  for (int32_t i = ids.empty() ? -1 : 0; i >= 0; i = symbols[i].next) {
    merged.push_back(symbols[i].id);
  }
  return merged;
}

// Rules that no training would make: results that merge sooner than their parts, cycles, ties.
Rules RandomRules(std::mt19937& random, int alphabet) {
  Rules rules;
  for (int i = random() % 12; i >= 0; --i) {
    const uint32_t priority = random() % 6;
    rules[{random() % alphabet, random() % alphabet}] = {priority,
                                                         static_cast<int32_t>(random() % alphabet)};
  }
  return rules;
}

TEST(SymbolMergerTest, MergesLikeTheDefinition) {
  std::mt19937 random(1);
  SymbolMerger merger;
  for (int round = 0; round < 20000; ++round) {
    const int alphabet = 1 + random() % 6;
    const Rules rules = RandomRules(random, alphabet);
    std::vector<int32_t> ids(random() % 30);
    for (int32_t& id : ids) id = random() % alphabet;
    ASSERT_EQ(MergeFast(ids, rules, &merger), MergeSlowly(ids, rules));
  }
}

TEST(SymbolMergerTest, LongTextsTakeAnotherQueueAndMergeTheSame) {
  std::mt19937 random(2);
  SymbolMerger merger;
  for (int round = 0; round < 12; ++round) {
    const int alphabet = 2 + random() % 20;
    const Rules rules = RandomRules(random, alphabet);
    std::vector<int32_t> ids(4097 + random() % 1000);
    for (int32_t& id : ids) id = random() % alphabet;
    ASSERT_EQ(MergeFast(ids, rules, &merger), MergeSlowly(ids, rules));
  }
}

}  // namespace
}  // namespace lm
