#include "engine/cache/kv_block_pool.h"

#include <cassert>

#include "absl/strings/str_cat.h"

namespace lm {

KvBlockPool::KvBlockPool(int32_t num_blocks) : references_(num_blocks, 0) {
  free_.reserve(num_blocks);
  for (int32_t block = num_blocks - 1; block >= 0; --block) free_.push_back(block);
}

std::optional<int32_t> KvBlockPool::Allocate() {
  if (free_.empty()) return std::nullopt;
  const int32_t block = free_.back();
  free_.pop_back();
  references_[block] = 1;
  return block;
}

void KvBlockPool::Ref(int32_t block) {
  assert(references_[block] > 0);
  ++references_[block];
}

void KvBlockPool::Unref(int32_t block) {
  assert(references_[block] > 0);
  if (--references_[block] == 0) free_.push_back(block);
}

absl::Status KvBlockPool::CheckIntegrity() const {
  std::vector<bool> is_free(references_.size(), false);
  for (int32_t block : free_) {
    if (block < 0 || block >= num_blocks()) {
      return absl::InternalError(
          absl::StrCat("KV block ", block, " of ", num_blocks(), " is free"));
    }
    if (is_free[block]) return absl::InternalError(absl::StrCat("KV block ", block, " free twice"));
    is_free[block] = true;
  }
  for (int32_t block = 0; block < num_blocks(); ++block) {
    if (is_free[block] != (references_[block] == 0) || references_[block] < 0) {
      return absl::InternalError(absl::StrCat("KV block ", block,
                                              is_free[block] ? " is" : " is not", " free with ",
                                              references_[block], " references"));
    }
  }
  return absl::OkStatus();
}

}  // namespace lm
