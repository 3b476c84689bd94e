#include "engine/model/layer_cache.h"

#include <algorithm>

#include "engine/base/status_macros.h"

namespace lm {

absl::StatusOr<LayerCache> LayerCache::Create(const ModelSpec& spec, const CacheSpec& cache,
                                              int64_t first, int64_t end, Backend* backend) {
  LayerCache memory;
  memory.first_ = first;
  memory.layers_.resize(end - first);
  const std::vector<CacheClass>& classes = cache.shape.classes;
  memory.blocks_.resize(classes.size());
  const std::vector<int32_t> kv_heads = CommonKvHeads(spec, cache, first, end);
  for (int64_t i = first; i < end; ++i) {
    if (cache.class_of[i] >= 0) {
      const BlockBytes bytes = BlockBytesOf(*spec.layers[i].attention(), cache.dtype);
      int64_t& block = memory.blocks_[cache.class_of[i]].bytes;
      block = cache.shape.whole_sequences ? std::max(block, bytes.own) : block + bytes.own;
      memory.blocks_[0].bytes += bytes.full;
    }
    memory.states_.bytes += StatesOf(spec.layers[i]).bytes();
  }
  for (size_t c = 0; c < classes.size(); ++c) {
    Arena& arena = memory.blocks_[c];
    if (arena.bytes == 0) continue;  // other backends have its layers
    ASSIGN_OR_RETURN(arena.buffer,
                     backend->AllocateKv(classes[c].num_blocks * arena.bytes, kv_heads[c]));
  }
  if (memory.states_.bytes > 0) {
    ASSIGN_OR_RETURN(memory.states_.buffer,
                     backend->Allocate(cache.shape.num_states * memory.states_.bytes));
  }

  std::vector<int64_t> used(classes.size());  // of a block
  int64_t used_states = 0;
  for (int64_t i = first; i < end; ++i) {
    Layer& layer = memory.layers_[i - first];
    auto place = [&](RowLayer rows, int32_t c) {
      if (rows.dim == 0) return rows;
      rows.cache_class = c;
      rows.num_blocks = classes[c].num_blocks;
      rows.block_stride = memory.blocks_[c].bytes / static_cast<int64_t>(sizeof(float));
      rows.data = reinterpret_cast<float*>(memory.blocks_[c].piece(0) + used[c]);
      used[c] += rows.block_values() * static_cast<int64_t>(sizeof(float));
      return rows;
    };
    const AttentionSpec* attention = spec.layers[i].attention();
    if (const int32_t c = cache.class_of[i]; c >= 0 && attention->compressed.has_value()) {
      layer.rows = {place(NearRowsOf(*attention), c), place(PooledRowsOf(*attention), 0),
                    place(IndexRowsOf(*attention), 0)};
    } else if (c >= 0) {
      layer.kv = KvLayerOf(*spec.layers[i].attention(), cache.dtype);
      layer.kv.cache_class = c;
      layer.kv.num_blocks = classes[c].num_blocks;
      layer.kv.block_stride = memory.blocks_[c].bytes;
      layer.kv.keys = memory.blocks_[c].piece(0) + used[c];
      layer.kv.values = memory.blocks_[c].piece(0) + used[c] + layer.kv.keys_bytes();
      // What an encoder's layer writes is read before the next one writes.
      if (!cache.shape.whole_sequences) {
        used[c] += layer.kv.keys_bytes() + layer.kv.values_bytes();
      }
    }
    const StateSizes sizes = StatesOf(spec.layers[i]);
    auto take = [&](int64_t values) {
      StateLayer state = {.data = reinterpret_cast<float*>(memory.states_.piece(0) + used_states),
                          .slot_stride = memory.states_.bytes / int64_t{sizeof(float)},
                          .num_slots = cache.shape.num_states};
      used_states += values * static_cast<int64_t>(sizeof(float));
      return state;
    };
    layer.conv = take(sizes.conv);
    layer.rule = take(sizes.rule);
  }
  return memory;
}

absl::Status LayerCache::Apply(const CacheOp& op, Backend* backend) const {
  if (op.kind == CacheOp::Kind::kCopyState) {
    if (states_.bytes == 0) return absl::OkStatus();
    return backend->Copy(states_.piece(op.from), states_.piece(op.to), states_.bytes);
  }
  const Arena& arena = blocks_[op.cache_class];
  if (arena.bytes == 0) return absl::OkStatus();
  if (op.kind == CacheOp::Kind::kZeroBlock) return backend->Zero(arena.piece(op.to), arena.bytes);
  // More than the tokens that are asked for does no harm: the target is new, and what lies behind
  // them is written before it is read.
  return backend->Copy(arena.piece(op.from), arena.piece(op.to), arena.bytes);
}

}  // namespace lm
