#include "engine/backend/cuda/attention_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "engine/backend/cuda/kept_plan.h"

namespace lm {
namespace {

using Key = std::pair<int32_t, int32_t>;  // a token and a chunk

// Which chunks each token's tiles have, and how often.
std::map<Key, int> Covered(const AttentionPlan& plan) {
  std::map<Key, int> covered;
  for (const cuda::AttentionTile& tile : plan.tiles) {
    for (int32_t i = 0; i < tile.count; ++i) {
      for (int32_t chunk = tile.first_chunk; chunk < tile.end_chunk; ++chunk) {
        ++covered[{plan.tokens[tile.first + i], chunk}];
      }
    }
  }
  return covered;
}

// Sequences of `context` tokens, of which the last `tokens` ask; the first `shared` blocks are the
// same for all.
StepTables SharingStep(int sequences, int32_t context, int32_t tokens, int32_t shared) {
  StepTables step;
  step.blocks.resize(1);
  const std::vector<int32_t> ids(tokens);
  for (int s = 0; s < sequences; ++s) {
    step.Append(ids.data(), tokens, context - tokens);
    for (int32_t b = 0; b < BlocksFor(context); ++b) {
      step.blocks[0].push_back(b < shared ? b : 1000 * (s + 1) + b);
    }
  }
  return step;
}

TEST(AttentionPlanTest, RowsOfOnePrefixShareItsTiles) {
  constexpr int kRows = 64, kGroup = 4;
  // Three chunks of 128 tokens are the same, the fourth is each one's own.
  const StepTables step = SharingStep(kRows, 440, 1, 12);
  AttentionPlan plan;
  PlanAttention(step,
                {.cache_class = 0, .group = kGroup, .kv_heads = 8, .value_dim = 64, .window = {}},
                &plan);
  EXPECT_EQ(plan.tiles.size(), 3u * kRows * kGroup / cuda::kTileRows + kRows);
  const std::map<Key, int> covered = Covered(plan);
  EXPECT_EQ(covered.size(), 4u * kRows);
  for (const auto& [key, count] : covered) EXPECT_EQ(count, 1);
  // Parts stand in the chunks' order, and name the tiles that have them.
  for (int32_t token = 0; token < kRows; ++token) {
    int32_t chunk = 0;
    for (int32_t p = plan.first_parts[token]; p < plan.first_parts[token + 1]; ++p, ++chunk) {
      const cuda::AttentionPart& part = plan.parts[p];
      const cuda::AttentionTile& tile = plan.tiles[part.partial];
      EXPECT_EQ(tile.partial, part.partial);
      EXPECT_EQ(tile.first_chunk, chunk);
      EXPECT_EQ(plan.tokens[tile.first + part.place], token);
    }
    EXPECT_EQ(chunk, 4);
  }
}

TEST(AttentionPlanTest, TokensHaveTheChunksThatTheySee) {
  for (const int32_t window : {0, 100, 300}) {
    // A long prompt that walks, and rows that decode beside it.
    StepTables step = SharingStep(1, 3000, 2600, 0);
    const std::vector<int32_t> id = {0};
    for (int s = 0; s < 5; ++s) {
      step.Append(id.data(), 1, 700 + s);
      for (int32_t b = 0; b < BlocksFor(701 + s); ++b) step.blocks[0].push_back(5000 + 100 * s + b);
    }
    const AttentionKind kind = {.cache_class = 0,
                                .group = 20,  // two tiles for the heads
                                .kv_heads = 4,
                                .value_dim = 64,
                                .window = {.size = window}};
    AttentionPlan plan;
    PlanAttention(step, kind, &plan);
    std::map<Key, int> covered = Covered(plan);
    int64_t walking = 0;
    for (const cuda::AttentionTile& tile : plan.tiles) walking += tile.partial < 0;
    EXPECT_EQ(walking, 2 * 2600);
    for (const StepSequence& sequence : step.sequences) {
      for (int32_t i = 0; i < sequence.num_tokens; ++i) {
        const SeenRange seen = SeenBy(kind.window, sequence.first_position + i, sequence.context());
        for (int64_t chunk = seen.first / cuda::kTileChunk; chunk * cuda::kTileChunk < seen.end;
             ++chunk) {
          const Key key = {sequence.first_row + i, static_cast<int32_t>(chunk)};
          EXPECT_EQ(covered[key], 2) << key.first << ", " << key.second;
          covered.erase(key);
        }
      }
    }
    EXPECT_TRUE(covered.empty());
  }
}

TEST(AttentionPlanTest, NoStepHasMoreThanTheGreatestPlan) {
  const AttentionKind kinds[] = {
      {.cache_class = 0, .group = 4, .kv_heads = 8, .value_dim = 128, .window = {}},
      {.cache_class = 0, .group = 20, .kv_heads = 1, .value_dim = 64, .window = {.size = 700}},
      {.cache_class = 0, .group = 1, .kv_heads = 32, .value_dim = 256, .window = {}},
      {.cache_class = 0,
       .group = 4,
       .kv_heads = 8,
       .value_dim = 128,
       .window = {},
       .partial_bytes = PartialBytesOn(int64_t{80} << 30)}};
  constexpr int32_t kContext = 130000;
  const StepBounds bounds = {.tokens = 512, .context = kContext};
  struct Shape {
    int sequences;
    int32_t context, tokens, shared;
  };
  for (const Shape& shape :
       {Shape{64, kContext, 8, 0}, Shape{64, 9000, 8, 0}, Shape{64, 3000, 1, 64},
        Shape{1, kContext, 1, 0}, Shape{1, kContext, 512, 0},
        Shape{72, kContext, 7, BlocksFor(kContext)}, Shape{1, 1, 1, 0}, Shape{30, 1000, 17, 3}}) {
    const StepTables step = SharingStep(shape.sequences, shape.context, shape.tokens, shape.shared);
    for (const AttentionKind& kind : kinds) {
      const AttentionPlanSizes most = GreatestPlan(kind, bounds);
      AttentionPlan plan;
      PlanAttention(step, kind, &plan);
      EXPECT_LE(plan.num_partials, most.partials);
      EXPECT_LE(plan.num_partials, MostPartials(kind, shape.context));
      EXPECT_LE(static_cast<int64_t>(plan.tiles.size()), most.tiles);
      EXPECT_LE(static_cast<int64_t>(plan.tokens.size()), most.tokens);
      EXPECT_LE(static_cast<int64_t>(plan.parts.size()), most.parts);
      EXPECT_LE(static_cast<int64_t>(plan.first_parts.size()), most.first_parts);
    }
  }
}

TEST(AttentionPlanTest, TheLongestContextsHaveThePartialResults) {
  // Some 2,000 partial results fit; each sequence alone would have 400.
  const StepTables step = SharingStep(20, 51200, 1, 0);
  const AttentionKind kind = {
      .cache_class = 0, .group = 4, .kv_heads = 8, .value_dim = 128, .window = {}};
  AttentionPlan plan;
  PlanAttention(step, kind, &plan);
  EXPECT_LE(plan.num_partials, MostPartials(kind, 51200));
  EXPECT_GT(plan.num_partials, MostPartials(kind, 51200) - 400);
  const std::map<Key, int> covered = Covered(plan);
  EXPECT_EQ(covered.size(), 20u * 400);
  for (const auto& [key, count] : covered) EXPECT_EQ(count, 1);
}

// A token that walks through a long context by itself has a warp a KV head.
TEST(AttentionPlanTest, NoLongContextWalksWhereTheDeviceHasRoomForIt) {
  constexpr int64_t kGiB = int64_t{1} << 30;
  struct Case {
    int sequences;
    int32_t context, tokens;
    int64_t device_bytes;
    bool walks;
  };
  for (const Case& c :
       {Case{2, 131072, 1, 24 * kGiB, false}, Case{8, 65536, 1, 80 * kGiB, false},
        Case{8, 131072, 1, 80 * kGiB, false}, Case{16, 131072, 1, 140 * kGiB, false},
        Case{1, 131072, 64, 140 * kGiB, false}, Case{2, 131072, 1, 8 * kGiB, true}}) {
    SCOPED_TRACE(testing::Message()
                 << c.sequences << " of " << c.context << ", " << c.device_bytes);
    const AttentionKind kind = {.cache_class = 0,
                                .group = 4,
                                .kv_heads = 8,
                                .value_dim = 128,
                                .window = {},
                                .partial_bytes = PartialBytesOn(c.device_bytes)};
    AttentionPlan plan;
    PlanAttention(SharingStep(c.sequences, c.context, c.tokens, 0), kind, &plan);
    EXPECT_EQ(std::any_of(plan.tiles.begin(), plan.tiles.end(),
                          [](const cuda::AttentionTile& tile) { return tile.partial < 0; }),
              c.walks);
    const AttentionPlanSizes most =
        GreatestPlan(kind, {.tokens = std::max(512, c.tokens), .context = c.context});
    EXPECT_LE(plan.num_partials, most.partials);
    const int64_t bytes = 8 * cuda::kTileRows * (128 + 2) * int64_t{sizeof(float)};
    EXPECT_LE(most.partials * bytes, kind.partial_bytes);
    EXPECT_LE(kind.partial_bytes, std::max(c.device_bytes / 128, kGiB / 8));
  }
}

void ExpectSamePlan(const AttentionPlan& got, const AttentionPlan& wanted) {
  auto numbers = [](const AttentionPlan& plan) {
    std::vector<int32_t> all = {plan.num_partials};
    for (const cuda::AttentionTile& t : plan.tiles) {
      all.insert(all.end(), {t.first, t.count, t.first_head, t.first_block, t.first_chunk,
                             t.end_chunk, t.partial});
    }
    for (const cuda::AttentionPart& part : plan.parts) {
      all.insert(all.end(), {part.partial, part.place});
    }
    for (const auto* list : {&plan.tokens, &plan.first_parts, &plan.table_of}) {
      all.insert(all.end(), list->begin(), list->end());
    }
    return all;
  };
  ASSERT_EQ(numbers(got), numbers(wanted));
}

// Rows that decode, some with a common prefix, a new block every 32 tokens; sometimes one ends and
// another begins, a guess is added, or a block becomes another's.
TEST(KeptPlanTest, IsThePlanOfEachStep) {
  constexpr int kSteps = 400, kRows = 9;
  for (const int32_t window : {0, 100}) {
    const AttentionKind kind = {
        .cache_class = 0, .group = 4, .kv_heads = 2, .value_dim = 64, .window = {.size = window}};
    std::mt19937 random(window);
    auto below = [&random](int n) { return static_cast<int32_t>(random() % n); };
    int32_t next_block = 100;
    std::vector<std::vector<int32_t>> tables(kRows);
    std::vector<int32_t> contexts(kRows);
    auto grow = [&](int row) {
      while (static_cast<int32_t>(tables[row].size()) < BlocksFor(contexts[row])) {
        tables[row].push_back(next_block++);
      }
    };
    auto begin = [&](int row) {
      contexts[row] = 300 + below(600);
      tables[row].clear();
      for (int32_t b = 0; b < 4 * below(3); ++b) tables[row].push_back(b);
    };
    for (int row = 0; row < kRows; ++row) begin(row);
    KeptPlan kept(kind);
    int counts[3] = {};
    for (int step_number = 0; step_number < kSteps; ++step_number) {
      if (step_number % 50 == 49) begin(below(kRows));
      const int guesses = step_number % 70 == 60 ? below(kRows) : -1;
      StepTables step;
      step.blocks.resize(1);
      for (int row = 0; row < kRows; ++row) {
        const std::vector<int32_t> ids(row == guesses ? 3 : 1);
        contexts[row] += static_cast<int32_t>(ids.size());
        grow(row);
        if (window > 0) {  // blocks that nobody sees any more are given back
          for (int32_t b = 0; b < (contexts[row] - window - 40) / kKvBlockTokens; ++b) {
            tables[row][b] = -1;
          }
        }
        step.Append(ids.data(), static_cast<int32_t>(ids.size()),
                    contexts[row] - static_cast<int32_t>(ids.size()));
        step.blocks[0].insert(step.blocks[0].end(), tables[row].begin(), tables[row].end());
      }
      if (step_number % 90 == 80) {  // two have found the same beginning
        const int from = below(kRows), to = below(kRows);
        std::copy_n(tables[from].begin(), 4, tables[to].begin());
      }
      ++counts[static_cast<int>(kept.Follow(step))];
      AttentionPlan wanted;
      PlanAttention(step, kind, &wanted);
      ExpectSamePlan(kept.plan(), wanted);
    }
    EXPECT_GT(counts[static_cast<int>(KeptPlan::Change::kNone)], kSteps / 2);
    EXPECT_GT(counts[static_cast<int>(KeptPlan::Change::kPlaces)], 30);
    EXPECT_GT(counts[static_cast<int>(KeptPlan::Change::kAll)], 10);
    EXPECT_LT(counts[static_cast<int>(KeptPlan::Change::kAll)], kSteps / 3);
  }
}

}  // namespace
}  // namespace lm
