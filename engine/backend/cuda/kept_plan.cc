#include "engine/backend/cuda/kept_plan.h"

#include <algorithm>
#include <cstring>

namespace lm {
namespace {

// A sequence's blocks in a table.
struct Table {
  const int32_t* blocks;
  int32_t count;

  Table(const StepSequence& sequence, const std::vector<int32_t>& all)
      : blocks(all.data() + sequence.first_block), count(BlocksFor(sequence.context())) {}

  bool HasSame(const Table& other, int32_t first, int32_t end) const {
    end = std::min(end, std::max(count, other.count));
    if (end > std::min(count, other.count)) return false;
    return first >= end ||
           std::memcmp(blocks + first, other.blocks + first, (end - first) * sizeof(int32_t)) == 0;
  }
  bool HasSameChunk(const Table& other, int32_t chunk) const {
    return HasSame(other, chunk * kBlocksOfChunk, (chunk + 1) * kBlocksOfChunk);
  }
};

int64_t ChunkOf(int64_t position) { return position / cuda::kTileChunk; }

}  // namespace

KeptPlan::Change KeptPlan::Follow(const StepTables& step) {
  Change change = Change::kAll;
  if (SeesTheSameChunks(step) && SharesTheSameChunks(step)) {
    change = Change::kNone;
    for (size_t i = 0; i < plan_.tiles.size(); ++i) {
      const int32_t first_block = step.sequences[plan_.table_of[i]].first_block;
      if (plan_.tiles[i].first_block == first_block) continue;
      plan_.tiles[i].first_block = first_block;
      change = Change::kPlaces;
    }
  } else {
    sequences_.clear();  // until it is made
    PlanAttention(step, kind_, &plan_);
  }
  sequences_ = step.sequences;
  blocks_ = step.blocks[kind_.cache_class];
  return change;
}

bool KeptPlan::SeesTheSameChunks(const StepTables& step) const {
  if (sequences_.empty() || step.sequences.size() != sequences_.size()) return false;
  for (size_t s = 0; s < sequences_.size(); ++s) {
    const StepSequence& old = sequences_[s];
    const StepSequence& now = step.sequences[s];
    if (now.first_row != old.first_row || now.num_tokens != old.num_tokens ||
        ChunkOf(now.context() - 1) != ChunkOf(old.context() - 1)) {
      return false;
    }
    for (int32_t i = 0; i < now.num_tokens; ++i) {
      const SeenRange was = SeenBy(kind_.window, old.first_position + i, old.context());
      const SeenRange is = SeenBy(kind_.window, now.first_position + i, now.context());
      if (ChunkOf(is.first) != ChunkOf(was.first) || ChunkOf(is.end - 1) != ChunkOf(was.end - 1)) {
        return false;
      }
    }
  }
  return true;
}

// Whether any two sequences have the same blocks in a chunk where they had the same ones.
bool KeptPlan::SharesTheSameChunks(const StepTables& step) const {
  const std::vector<int32_t>& blocks = step.blocks[kind_.cache_class];
  for (size_t s = 0; s < sequences_.size(); ++s) {
    const Table was(sequences_[s], blocks_), is(step.sequences[s], blocks);
    if (was.HasSame(is, 0, std::max(was.count, is.count))) continue;
    const int32_t chunks = (is.count + kBlocksOfChunk - 1) / kBlocksOfChunk;
    for (int32_t chunk = 0; chunk < chunks; ++chunk) {
      if (was.HasSameChunk(is, chunk)) continue;
      for (size_t o = 0; o < sequences_.size(); ++o) {
        const Table other_was(sequences_[o], blocks_), other_is(step.sequences[o], blocks);
        if (o == s || other_is.count <= chunk * kBlocksOfChunk) continue;
        if (was.HasSameChunk(other_was, chunk) != is.HasSameChunk(other_is, chunk)) return false;
      }
    }
  }
  return true;
}

}  // namespace lm
