#include "engine/model/kv_cache.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/base/cpu_features.h"
#include "engine/base/status_macros.h"

namespace lm {

int64_t KvCache::DefaultBytes() {
  constexpr int64_t kMost = int64_t{2} << 30;
  const int64_t physical = PhysicalMemoryBytes();
  return physical > 0 ? std::min(kMost, physical / 8) : kMost;
}

absl::StatusOr<KvCache> KvCache::Create(const ModelConfig& config, int64_t bytes, DType dtype,
                                        Backend* backend) {
  constexpr int64_t kMaxSequences = 64;
  if (bytes == 0) bytes = DefaultBytes();
  KvLayer layer{.dtype = dtype,
                .kv_heads = static_cast<int32_t>(config.kv_heads),
                .head_dim = static_cast<int32_t>(config.head_dim)};
  KvCache cache;
  cache.block_bytes_ = config.layers * 2 * layer.block_bytes();
  int64_t useful = (config.context_length + kKvBlockTokens - 1) / kKvBlockTokens * kMaxSequences;
  int64_t blocks = std::min({bytes / cache.block_bytes_, useful, int64_t{1} << 30});
  if (blocks < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("kv_bytes = ", bytes, " holds no KV block: this model needs ",
                     cache.block_bytes_, " bytes for each ", kKvBlockTokens, " tokens"));
  }
  cache.num_blocks_ = static_cast<int32_t>(blocks);
  ASSIGN_OR_RETURN(cache.buffer_, backend->Allocate(blocks * cache.block_bytes_));
  layer.num_blocks = cache.num_blocks_;
  char* next = static_cast<char*>(cache.buffer_.data());
  for (int64_t i = 0; i < config.layers; ++i) {
    layer.keys = next;
    layer.values = next + blocks * layer.block_bytes();
    next += 2 * blocks * layer.block_bytes();
    cache.layers_.push_back(layer);
  }
  return cache;
}

}  // namespace lm
