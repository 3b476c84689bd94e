// Who reads which keys and values in a step: the tiles of attention_tiles.cuh, for one class of the
// cache and one kind of attention.
#ifndef LM_ENGINE_BACKEND_CUDA_ATTENTION_PLAN_H_
#define LM_ENGINE_BACKEND_CUDA_ATTENTION_PLAN_H_

#include <cstdint>
#include <tuple>
#include <vector>

#include "engine/backend/backend.h"
#include "engine/backend/cuda/attention_tiles.cuh"
#include "engine/backend/step_tables.h"
#include "engine/backend/window.h"

namespace lm {

inline constexpr int32_t kBlocksOfChunk = cuda::kTileChunk / kKvBlockTokens;
static_assert(cuda::kTileChunk % kKvBlockTokens == 0);

// Bytes that partial results may take on a device of `device_bytes` of memory, which is a 128th of
// it, or 128 MiB: enough for contexts that share nothing and are all that the device has room for,
// as keys and values of F16 take 8 times the bytes of their partial results in each layer (of
// groups of up to 16 heads).
int64_t PartialBytesOn(int64_t device_bytes);

struct AttentionKind {
  int32_t cache_class;
  int64_t group;  // query heads of a KV head
  int64_t kv_heads;
  int64_t value_dim;
  Window window;
  int64_t partial_bytes = PartialBytesOn(0);  // at most, but for those of one token

  bool operator==(const AttentionKind& other) const {
    auto key = [](const AttentionKind& kind) {
      return std::tuple(kind.cache_class, kind.group, kind.kv_heads, kind.value_dim,
                        kind.window.causal, kind.window.size, kind.window.kind, kind.partial_bytes);
    };
    return key(*this) == key(other);
  }
};

struct AttentionPlan {
  std::vector<cuda::AttentionTile> tiles;
  std::vector<int32_t> table_of;  // of each tile the sequence whose block table it reads
  std::vector<int32_t> tokens;
  std::vector<cuda::AttentionPart> parts;
  std::vector<int32_t> first_parts;  // (T + 1,)
  int32_t num_partials = 0;
};

// The most partial results that a plan has where `context` is the longest context: what fits
// kind.partial_bytes, or those of one token of that context, if that is more.
int64_t MostPartials(const AttentionKind& kind, int64_t context);

// How many there are of each at most, in any step within the bounds.
struct AttentionPlanSizes {
  int64_t tiles = 0;
  int64_t tokens = 0;
  int64_t parts = 0;
  int64_t first_parts = 0;
  int64_t partials = 0;
};
AttentionPlanSizes GreatestPlan(const AttentionKind& kind, const StepBounds& bounds);

// Sequences of long prompts, where they are enough to keep a GPU busy, have tiles that walk through
// all they see. All others have a tile a chunk of positions, which tokens whose tables have the
// same blocks there share: those of one sequence, or of sequences with a common prefix. Where that
// makes too many partial results the longest contexts have them, and the others walk.
void PlanAttention(const StepTables& step, const AttentionKind& kind, AttentionPlan* plan);

}  // namespace lm

#endif  // LM_ENGINE_BACKEND_CUDA_ATTENTION_PLAN_H_
