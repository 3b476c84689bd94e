#include "engine/model/kv_cache.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/base/cpu_features.h"
#include "engine/base/status_macros.h"

namespace lm {
namespace {

KvLayer LayerOf(const ModelConfig& config, DType dtype) {
  return {.dtype = dtype,
          .kv_heads = static_cast<int32_t>(config.kv_heads),
          .head_dim = static_cast<int32_t>(config.head_dim)};
}

}  // namespace

int64_t KvCache::DefaultBytes() {
  constexpr int64_t kMost = int64_t{2} << 30;
  const int64_t physical = PhysicalMemoryBytes();
  return physical > 0 ? std::min(kMost, physical / 8) : kMost;
}

absl::StatusOr<int32_t> KvCache::NumBlocks(const ModelConfig& config, int64_t bytes, DType dtype) {
  constexpr int64_t kMaxSequences = 64;
  if (bytes == 0) bytes = DefaultBytes();
  const int64_t block_bytes = config.layers * 2 * LayerOf(config, dtype).block_bytes();
  const int64_t useful =
      (config.context_length + kKvBlockTokens - 1) / kKvBlockTokens * kMaxSequences;
  const int64_t blocks = std::min({bytes / block_bytes, useful, int64_t{1} << 30});
  if (blocks < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("kv_bytes = ", bytes, " holds no KV block: this model needs ", block_bytes,
                     " bytes for each ", kKvBlockTokens, " tokens"));
  }
  return static_cast<int32_t>(blocks);
}

absl::StatusOr<KvCache> KvCache::Create(const ModelConfig& config, int64_t first, int64_t end,
                                        int32_t num_blocks, DType dtype, Backend* backend) {
  KvCache cache;
  cache.first_ = first;
  KvLayer layer = LayerOf(config, dtype);
  layer.num_blocks = num_blocks;
  const int64_t bytes = num_blocks * layer.block_bytes();  // keys of a layer
  ASSIGN_OR_RETURN(cache.buffer_, backend->Allocate((end - first) * 2 * bytes));
  char* next = static_cast<char*>(cache.buffer_.data());
  for (int64_t i = first; i < end; ++i) {
    layer.keys = next;
    layer.values = next + bytes;
    next += 2 * bytes;
    cache.layers_.push_back(layer);
  }
  return cache;
}

int64_t KvCache::block_bytes() const {
  return static_cast<int64_t>(layers_.size()) * 2 * layers_[0].block_bytes();
}

}  // namespace lm
