// BlockOwners knows whose data the blocks of the cache may hold, by salt: before a block is
// another's it is cleared.
#ifndef LM_ENGINE_RUNTIME_BLOCK_OWNERS_H_
#define LM_ENGINE_RUNTIME_BLOCK_OWNERS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "engine/base/hash_map.h"
#include "engine/model/language_model.h"

namespace lm {

// Not thread-safe.
class BlockOwners {
 public:
  // All blocks are zero, and belong to no salt.
  explicit BlockOwners(const CacheShape& shape);
  BlockOwners(const BlockOwners&) = delete;
  BlockOwners& operator=(const BlockOwners&) = delete;

  // Whether another than `salt` may have left something in the block.
  bool HoldsAnothers(size_t cache_class, int32_t block, absl::string_view salt) const;
  // The block, which is cleared if need be, is now the salt's.
  void Give(size_t cache_class, int32_t block, absl::string_view salt);
  // Any block may hold data of any salt.
  void Distrust();

  size_t num_salts() const { return salts_.size(); }  // that have a block

 private:
  // A salt, and how many blocks it has.
  using Salt = std::pair<const std::string, int64_t>;

  void Drop(Salt* salt);

  HashMap<std::string, int64_t> salts_;  // elements stay where they are
  Salt any_;                             // of a block that may hold data of any salt
  std::vector<std::vector<Salt*>> owners_;  // of each class's blocks; null: no salt
};

}  // namespace lm

#endif  // LM_ENGINE_RUNTIME_BLOCK_OWNERS_H_
