// LayerCache: the memory behind the numbers of KV blocks and state slots, for the layers of a model
// that one backend has. Block-major: the keys and values of all layers of a class lie side by side
// in a block, the states of all layers in a slot, so that either moves as one piece.
#ifndef LM_ENGINE_MODEL_LAYER_CACHE_H_
#define LM_ENGINE_MODEL_LAYER_CACHE_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/backend/backend.h"
#include "engine/model/cache_spec.h"

namespace lm {

// Of compressed attention, which keeps them in the place of keys and values; without data where it
// has none.
struct RowLayers {
  RowLayer near, pooled, index;
};

class LayerCache {
 public:
  LayerCache() = default;  // of no layers

  // For the layers [first, end). Host memory is committed only when it is first written.
  // REQUIRES: *backend outlives this.
  static absl::StatusOr<LayerCache> Create(const ModelSpec& spec, const CacheSpec& cache,
                                           int64_t first, int64_t end, Backend* backend);

  // Layer i of the model, first <= i < end: one of them, or several.
  const KvLayer& kv(int64_t i) const { return layers_[i - first_].kv; }
  const RowLayers& rows(int64_t i) const { return layers_[i - first_].rows; }
  const StateLayer& conv_state(int64_t i) const { return layers_[i - first_].conv; }
  const StateLayer& rule_state(int64_t i) const { return layers_[i - first_].rule; }

  // REQUIRES: the op's numbers are in range.
  absl::Status Apply(const CacheOp& op, Backend* backend) const;

  // These layers' part of a block, or of the state in a slot. REQUIRES: they are in host memory.
  absl::Span<char> BlockMemory(int32_t cache_class, int32_t block) const {
    return blocks_[cache_class].span(block);
  }
  absl::Span<char> StateMemory(int32_t slot) const { return states_.span(slot); }

 private:
  struct Layer {
    KvLayer kv;
    RowLayers rows;
    StateLayer conv, rule;
  };
  // Memory of `count` pieces of `bytes` bytes.
  struct Arena {
    Buffer buffer;
    int64_t bytes = 0;
    char* piece(int64_t i) const { return static_cast<char*>(buffer.data()) + i * bytes; }
    absl::Span<char> span(int64_t i) const {
      return bytes == 0 ? absl::Span<char>() : absl::MakeSpan(piece(i), bytes);
    }
  };

  std::vector<Arena> blocks_;  // of each class
  Arena states_;
  int64_t first_ = 0;
  std::vector<Layer> layers_;
};

}  // namespace lm

#endif  // LM_ENGINE_MODEL_LAYER_CACHE_H_
