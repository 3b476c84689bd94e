// Who reads which keys and values in a step: the tiles of attention_tiles.cuh, for one class of the
// cache and one kind of attention.
#ifndef LM_ENGINE_BACKEND_CUDA_ATTENTION_PLAN_H_
#define LM_ENGINE_BACKEND_CUDA_ATTENTION_PLAN_H_

#include <cstdint>
#include <tuple>
#include <vector>

#include "engine/backend/cuda/attention_tiles.cuh"
#include "engine/backend/step_tables.h"
#include "engine/backend/window.h"

namespace lm {

struct AttentionKind {
  int32_t cache_class;
  int64_t group;  // query heads of a KV head
  int64_t kv_heads;
  int64_t value_dim;
  Window window;

  bool operator==(const AttentionKind& other) const {
    auto key = [](const AttentionKind& kind) {
      return std::tuple(kind.cache_class, kind.group, kind.kv_heads, kind.value_dim,
                        kind.window.causal, kind.window.size, kind.window.kind);
    };
    return key(*this) == key(other);
  }
};

struct AttentionPlan {
  std::vector<cuda::AttentionTile> tiles;
  std::vector<int32_t> tokens;
  std::vector<cuda::AttentionPart> parts;
  std::vector<int32_t> first_parts;  // (T + 1,)
  int32_t num_partials = 0;
};

// Sequences of long prompts, where they are enough to keep a GPU busy, have tiles that walk through
// all they see. All others have a tile a chunk of positions, which tokens whose tables have the
// same blocks there share: those of one sequence, or of sequences with a common prefix.
void PlanAttention(const StepTables& step, const AttentionKind& kind, AttentionPlan* plan);

}  // namespace lm

#endif  // LM_ENGINE_BACKEND_CUDA_ATTENTION_PLAN_H_
