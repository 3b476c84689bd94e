#include "engine/backend/cuda/attention_plan.h"

#include <algorithm>
#include <array>
#include <map>

namespace lm {
namespace {

constexpr int64_t kEnoughWarps = 1024;  // of tiles that walk, to keep a GPU busy
constexpr int64_t kLongPrompt = 16;     // tokens, that may walk

int64_t ChunksOf(int64_t context) { return (context + cuda::kTileChunk - 1) / cuda::kTileChunk; }

int64_t HeadTiles(const AttentionKind& kind) {
  return (kind.group + cuda::kTileRows - 1) / cuda::kTileRows;
}

int64_t PartialBytes(const AttentionKind& kind) {
  return kind.kv_heads * cuda::kTileRows * (kind.value_dim + 2) *
         static_cast<int64_t>(sizeof(float));
}

class Planner {
 public:
  Planner(const StepTables& step, const AttentionKind& kind, AttentionPlan* plan)
      : step_(step),
        kind_(kind),
        plan_(plan),
        tile_tokens_(cuda::TileTokens(kind.group)),
        head_tiles_(HeadTiles(kind)) {}

  void Run() {
    const bool walks = LongPromptsWalk();
    std::vector<const StepSequence*> walking, others;
    int64_t longest = 0;
    for (const StepSequence& sequence : step_.sequences) {
      (walks && sequence.num_tokens >= kLongPrompt ? walking : others).push_back(&sequence);
      longest = std::max<int64_t>(longest, sequence.context());
    }
    Plan(walking, others);
    const int64_t most = MostPartials(kind_, longest);
    if (plan_->num_partials <= most) return;
    std::stable_sort(others.begin(), others.end(), [](const auto* a, const auto* b) {
      return ChunksOf(a->context()) > ChunksOf(b->context());  // so a token more changes nothing
    });
    int64_t partials = 0;
    const auto rest = std::find_if(others.begin(), others.end(), [&](const StepSequence* sequence) {
      partials += PartialsOf(*sequence);
      return partials > most;
    });
    walking.insert(walking.end(), rest, others.end());
    others.erase(rest, others.end());
    Plan(walking, others);
  }

 private:
  void Plan(const std::vector<const StepSequence*>& walking,
            const std::vector<const StepSequence*>& others) {
    *plan_ = {};
    for (const StepSequence* sequence : walking) Walk(*sequence);
    // The last tokens of a prompt see most: they begin first.
    std::reverse(plan_->tiles.begin(), plan_->tiles.end());
    std::reverse(plan_->table_of.begin(), plan_->table_of.end());
    Split(others);
  }

  SeenRange Seen(const StepSequence& sequence, int64_t i) const {
    return SeenBy(kind_.window, sequence.first_position + i, sequence.context());
  }

  bool LongPromptsWalk() const {
    int64_t tiles = 0, partials = 0;
    for (const StepSequence& sequence : step_.sequences) {
      partials += PartialsOf(sequence);
      if (sequence.num_tokens >= kLongPrompt) tiles += TilesOf(sequence);
    }
    return tiles * kind_.kv_heads >= kEnoughWarps ||
           partials * PartialBytes(kind_) > kind_.partial_bytes;
  }

  int64_t TilesOf(const StepSequence& sequence) const {
    return (sequence.num_tokens + tile_tokens_ - 1) / tile_tokens_ * head_tiles_;
  }
  // Those of a sequence that shares none.
  int64_t PartialsOf(const StepSequence& sequence) const {
    return TilesOf(sequence) * ChunksOf(sequence.context());
  }

  // A tile for each 16 heads. `partial` is the first one's, or -1.
  void AddTiles(int32_t first, int32_t count, const StepSequence& table, int32_t first_chunk,
                int32_t end_chunk, int32_t partial) {
    for (int32_t i = 0; i < head_tiles_; ++i) {
      plan_->tiles.push_back({first, count, i * cuda::kTileRows, table.first_block, first_chunk,
                              end_chunk, partial < 0 ? -1 : partial + i});
      plan_->table_of.push_back(static_cast<int32_t>(&table - step_.sequences.data()));
    }
  }

  void Walk(const StepSequence& sequence) {
    for (int64_t i = 0; i < sequence.num_tokens; i += tile_tokens_) {
      const auto first = static_cast<int32_t>(plan_->tokens.size());
      const int64_t count = std::min(tile_tokens_, sequence.num_tokens - i);
      int64_t begin = INT64_MAX, end = 0;
      for (int64_t j = i; j < i + count; ++j) {
        plan_->tokens.push_back(static_cast<int32_t>(sequence.first_row + j));
        const SeenRange seen = Seen(sequence, j);
        begin = std::min(begin, seen.first);
        end = std::max(end, seen.end);
      }
      AddTiles(first, static_cast<int32_t>(count), sequence,
               static_cast<int32_t>(begin / cuda::kTileChunk),
               static_cast<int32_t>((end + cuda::kTileChunk - 1) / cuda::kTileChunk), -1);
    }
  }

  void Split(const std::vector<const StepSequence*>& sequences) {
    struct Readers {
      const StepSequence* table;
      std::vector<int32_t> tokens;
    };
    std::map<std::array<int32_t, kBlocksOfChunk>, size_t> known;
    std::vector<Readers> readers;
    std::vector<std::vector<cuda::AttentionPart>> parts(step_.tokens.size());
    const std::vector<int32_t>& blocks = step_.blocks[kind_.cache_class];
    int32_t chunks = 0;
    for (const StepSequence* sequence : sequences) {
      chunks = std::max(chunks, (sequence->context() - 1) / cuda::kTileChunk + 1);
    }
    for (int32_t chunk = 0; chunk < chunks; ++chunk) {
      const int64_t begin = int64_t{chunk} * cuda::kTileChunk, end = begin + cuda::kTileChunk;
      known.clear();
      readers.clear();
      for (const StepSequence* sequence : sequences) {
        if (sequence->context() <= begin) continue;
        std::array<int32_t, kBlocksOfChunk> key;
        key.fill(-2);  // there is none
        const int32_t at = chunk * kBlocksOfChunk;
        for (int32_t b = 0; b < std::min(kBlocksOfChunk, BlocksFor(sequence->context()) - at);
             ++b) {
          key[b] = blocks[sequence->first_block + at + b];
        }
        const auto [entry, is_new] = known.try_emplace(key, readers.size());
        if (is_new) readers.push_back({sequence, {}});
        for (int64_t i = 0; i < sequence->num_tokens; ++i) {
          const SeenRange seen = Seen(*sequence, i);
          if (seen.first >= end || seen.end <= begin) continue;
          readers[entry->second].tokens.push_back(static_cast<int32_t>(sequence->first_row + i));
        }
      }
      for (const Readers& all : readers) {
        for (size_t i = 0; i < all.tokens.size(); i += tile_tokens_) {
          const auto first = static_cast<int32_t>(plan_->tokens.size());
          const auto count =
              static_cast<int32_t>(std::min<size_t>(tile_tokens_, all.tokens.size() - i));
          for (int32_t place = 0; place < count; ++place) {
            plan_->tokens.push_back(all.tokens[i + place]);
            parts[all.tokens[i + place]].push_back({plan_->num_partials, place});
          }
          AddTiles(first, count, *all.table, chunk, chunk + 1, plan_->num_partials);
          plan_->num_partials += static_cast<int32_t>(head_tiles_);
        }
      }
    }
    for (const std::vector<cuda::AttentionPart>& of_token : parts) {
      plan_->first_parts.push_back(static_cast<int32_t>(plan_->parts.size()));
      plan_->parts.insert(plan_->parts.end(), of_token.begin(), of_token.end());
    }
    plan_->first_parts.push_back(static_cast<int32_t>(plan_->parts.size()));
  }

  const StepTables& step_;
  const AttentionKind& kind_;
  AttentionPlan* const plan_;
  const int64_t tile_tokens_, head_tiles_;
};

}  // namespace

int64_t PartialBytesOn(int64_t device_bytes) {
  constexpr int64_t kShare = 128, kLeast = int64_t{128} << 20;
  return std::max(device_bytes / kShare, kLeast);
}

int64_t MostPartials(const AttentionKind& kind, int64_t context) {
  return std::max(kind.partial_bytes / PartialBytes(kind), ChunksOf(context) * HeadTiles(kind));
}

AttentionPlanSizes GreatestPlan(const AttentionKind& kind, const StepBounds& bounds) {
  const int64_t head_tiles = HeadTiles(kind), chunks = ChunksOf(bounds.context);
  AttentionPlanSizes sizes;
  sizes.partials =
      std::min(bounds.tokens * chunks * head_tiles, MostPartials(kind, bounds.context));
  sizes.tiles = sizes.partials + bounds.tokens * head_tiles;
  const int64_t places = sizes.partials / head_tiles * cuda::TileTokens(kind.group);
  sizes.parts = std::min(places, bounds.tokens * chunks);
  sizes.tokens = sizes.parts + bounds.tokens;
  sizes.first_parts = bounds.tokens + 1;
  return sizes;
}

void PlanAttention(const StepTables& step, const AttentionKind& kind, AttentionPlan* plan) {
  Planner(step, kind, plan).Run();
}

}  // namespace lm
