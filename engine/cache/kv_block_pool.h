// KvBlockPool hands out KV blocks by number and counts their references. It knows no tensors: a
// block is an index into the model's KV cache.
#ifndef LM_ENGINE_CACHE_KV_BLOCK_POOL_H_
#define LM_ENGINE_CACHE_KV_BLOCK_POOL_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"

namespace lm {

// Not thread-safe: the engine's thread owns it.
class KvBlockPool {
 public:
  explicit KvBlockPool(int32_t num_blocks);

  // A block with one reference, or nothing where none is free.
  std::optional<int32_t> Allocate();
  // REQUIRES: the block has a reference already.
  void Ref(int32_t block);
  // Drops a reference; the last one frees the block.
  void Unref(int32_t block);

  int32_t num_blocks() const { return static_cast<int32_t>(references_.size()); }
  int32_t num_free() const { return static_cast<int32_t>(free_.size()); }
  int32_t references(int32_t block) const { return references_[block]; }

  // Internal where free and referenced blocks do not add up to num_blocks().
  absl::Status CheckIntegrity() const;

 private:
  std::vector<int32_t> references_;  // 0: free
  std::vector<int32_t> free_;        // a stack: the block freed last is warm, and goes out first
};

}  // namespace lm

#endif  // LM_ENGINE_CACHE_KV_BLOCK_POOL_H_
