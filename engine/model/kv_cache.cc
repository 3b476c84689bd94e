#include "engine/model/kv_cache.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/base/cpu_features.h"
#include "engine/base/status_macros.h"

namespace lm {
namespace {

KvLayer LayerOf(const AttentionSpec& attention, int32_t num_blocks, DType dtype) {
  return {.dtype = dtype,
          .num_blocks = num_blocks,
          .kv_heads = static_cast<int32_t>(attention.kv_heads),
          .head_dim = static_cast<int32_t>(attention.head_dim)};
}

// Of one block in all the layers, keys and values.
int64_t BlockBytes(absl::Span<const LayerSpec> layers, DType dtype) {
  int64_t bytes = 0;
  for (const LayerSpec& layer : layers)
    bytes += 2 * LayerOf(layer.attention, 1, dtype).block_bytes();
  return bytes;
}

}  // namespace

int64_t KvCache::DefaultBytes() {
  constexpr int64_t kMost = int64_t{2} << 30;
  const int64_t physical = PhysicalMemoryBytes();
  return physical > 0 ? std::min(kMost, physical / 8) : kMost;
}

absl::StatusOr<int32_t> KvCache::NumBlocks(const ModelSpec& spec, int64_t bytes, DType dtype) {
  constexpr int64_t kMaxSequences = 64;
  if (bytes == 0) bytes = DefaultBytes();
  const int64_t block_bytes = BlockBytes(spec.layers, dtype);
  const int64_t useful =
      (spec.context_length + kKvBlockTokens - 1) / kKvBlockTokens * kMaxSequences;
  const int64_t blocks = std::min({bytes / block_bytes, useful, int64_t{1} << 30});
  if (blocks < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("kv_bytes = ", bytes, " holds no KV block: this model needs ", block_bytes,
                     " bytes for each ", kKvBlockTokens, " tokens"));
  }
  return static_cast<int32_t>(blocks);
}

absl::StatusOr<KvCache> KvCache::Create(const ModelSpec& spec, int64_t first, int64_t end,
                                        int32_t num_blocks, DType dtype, Backend* backend) {
  KvCache cache;
  cache.first_ = first;
  const auto layers = absl::MakeConstSpan(spec.layers).subspan(first, end - first);
  ASSIGN_OR_RETURN(cache.buffer_, backend->Allocate(num_blocks * BlockBytes(layers, dtype)));
  char* next = static_cast<char*>(cache.buffer_.data());
  for (const LayerSpec& described : layers) {
    KvLayer layer = LayerOf(described.attention, num_blocks, dtype);
    const int64_t bytes = num_blocks * layer.block_bytes();  // of its keys
    layer.keys = next;
    layer.values = next + bytes;
    next += 2 * bytes;
    cache.layers_.push_back(layer);
  }
  return cache;
}

int64_t KvCache::block_bytes() const {
  int64_t bytes = 0;
  for (const KvLayer& layer : layers_) bytes += 2 * layer.block_bytes();
  return bytes;
}

}  // namespace lm
