// PrefixSightings remembers which beginnings of prompts have been seen, in a few bytes a block,
// when the blocks that were computed of them are long gone.
//
//   if (sightings.See(owner, prompt) >= 64) ...  // an earlier prompt began with 64 of its tokens
//   too
#ifndef LM_ENGINE_CACHE_PREFIX_SIGHTINGS_H_
#define LM_ENGINE_CACHE_PREFIX_SIGHTINGS_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/base/hash_map.h"

namespace lm {

// Not thread-safe.
class PrefixSightings {
 public:
  explicit PrefixSightings(int64_t block_tokens) : block_tokens_(block_tokens) {}

  // How many tokens of the prompt, in whole blocks, an earlier prompt of the owner began with too.
  // Remembers this prompt. Compares hashes: it may be wrong, which only costs a file.
  int64_t See(absl::string_view owner, absl::Span<const int32_t> tokens);

 private:
  // Blocks after which the older half is forgotten.
  static constexpr size_t kMost = 1 << 16;

  const int64_t block_tokens_;
  HashSet<uint64_t> seen_, seen_before_;  // hashes of all tokens up to a block's end
};

}  // namespace lm

#endif  // LM_ENGINE_CACHE_PREFIX_SIGHTINGS_H_
