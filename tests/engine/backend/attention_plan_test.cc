#include "engine/backend/cuda/attention_plan.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

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

}  // namespace
}  // namespace lm
