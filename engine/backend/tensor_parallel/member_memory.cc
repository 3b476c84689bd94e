#include "engine/backend/tensor_parallel/member_memory.h"

#include <iterator>
#include <utility>

namespace lm {

void MemberMemory::Add(const void* begin, size_t bytes, int32_t shares,
                       absl::Span<const Buffer> members) {
  Region region = {static_cast<const char*>(begin), bytes, shares, {}};
  for (const Buffer& buffer : members) region.members.push_back(buffer.chars().data());
  regions_[region.begin] = std::move(region);
}

void MemberMemory::Remove(const void* begin) { regions_.erase(static_cast<const char*>(begin)); }

const MemberMemory::Region* MemberMemory::Find(const void* data) const {
  const auto behind = regions_.upper_bound(static_cast<const char*>(data));
  if (behind == regions_.begin()) return nullptr;
  const Region& region = std::prev(behind)->second;
  return static_cast<const char*>(data) <= region.begin + region.bytes ? &region : nullptr;
}

int32_t MemberMemory::SharesOf(const void* data) const {
  const Region* const region = Find(data);
  return region == nullptr ? 1 : region->shares;
}

void* MemberMemory::At(const void* data, size_t member) const {
  const Region* const region = Find(data);
  if (region == nullptr) return const_cast<void*>(data);
  return region->members[member] +
         (static_cast<const char*>(data) - region->begin) / region->shares;
}

}  // namespace lm
