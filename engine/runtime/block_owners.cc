#include "engine/runtime/block_owners.h"

#include <algorithm>

namespace lm {

BlockOwners::BlockOwners(const CacheShape& shape) : any_("", 0) {
  for (const CacheClass& c : shape.classes) owners_.emplace_back(c.num_blocks, nullptr);
}

bool BlockOwners::HoldsAnothers(size_t cache_class, int32_t block, absl::string_view salt) const {
  const Salt* owner = owners_[cache_class][block];
  return owner != nullptr && (owner == &any_ || owner->first != salt);
}

void BlockOwners::Give(size_t cache_class, int32_t block, absl::string_view salt) {
  Salt*& owner = owners_[cache_class][block];
  if (owner != nullptr && owner != &any_ && owner->first == salt) return;
  auto found = salts_.find(salt);
  if (found == salts_.end()) found = salts_.try_emplace(std::string(salt)).first;
  ++found->second;
  Drop(std::exchange(owner, &*found));
}

void BlockOwners::Distrust() {
  for (std::vector<Salt*>& owners : owners_) std::fill(owners.begin(), owners.end(), &any_);
  salts_.clear();
}

void BlockOwners::Drop(Salt* salt) {
  if (salt == nullptr || salt == &any_ || --salt->second > 0) return;
  salts_.erase(salts_.find(salt->first));
}

}  // namespace lm
