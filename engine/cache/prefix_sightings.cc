#include "engine/cache/prefix_sightings.h"

#include <utility>

#include "engine/base/digest.h"

namespace lm {

int64_t PrefixSightings::See(absl::string_view owner, absl::Span<const int32_t> tokens) {
  int64_t known = 0;
  uint64_t hash = DigestOf(owner).low;
  for (int64_t end = block_tokens_; end <= static_cast<int64_t>(tokens.size());
       end += block_tokens_) {
    const absl::Span<const int32_t> block = tokens.subspan(end - block_tokens_, block_tokens_);
    hash = DigestOf({reinterpret_cast<const char*>(block.data()), block.size() * sizeof(int32_t)},
                    hash)
               .low;
    const bool before = seen_before_.contains(hash);
    if (!seen_.insert(hash).second || before) known = end;
  }
  if (seen_.size() >= kMost) seen_before_ = std::exchange(seen_, {});
  return known;
}

}  // namespace lm
