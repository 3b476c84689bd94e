#include "engine/model/cache_spec.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/base/cpu_features.h"
#include "engine/model/step_bounds.h"

namespace lm {
namespace {

constexpr int64_t kSequences = kMostSequences + kInteractiveSeats;
constexpr int64_t kSnapshots = 64;
// Sequences of the full context beyond which more blocks are of no use.
constexpr int64_t kFullSequences = 64;
// Blocks without memory of their own, at most: what is kept of a block in use, and of its tokens,
// is some 200 bytes, which no budget counts.
constexpr int64_t kEmptyBlocks = 1 << 18;

void AddLayer(const LayerSpec& layer, DType dtype, CacheSpec* cache) {
  const AttentionSpec* attention = layer.attention();
  cache->shape.state_bytes += StatesOf(layer).bytes();
  if (attention == nullptr || attention->kv_source >= 0) return cache->class_of.push_back(-1);
  std::vector<CacheClass>& classes = cache->shape.classes;
  // What is kept until the step has ended is not given back before.
  const int64_t window = cache->shape.whole_sequences ? 0 : attention->window;
  auto found = std::find_if(classes.begin(), classes.end(),
                            [window](const CacheClass& c) { return c.window == window; });
  if (found == classes.end()) found = classes.insert(found, {.window = window});
  cache->class_of.push_back(static_cast<int32_t>(found - classes.begin()));
  const BlockBytes bytes = BlockBytesOf(*attention, dtype);
  found->block_bytes = cache->shape.whole_sequences ? std::max(found->block_bytes, bytes.own)
                                                    : found->block_bytes + bytes.own;
  classes[0].block_bytes += bytes.full;
}

// Nothing of it is there.
CacheSpec ClassesOf(const ModelSpec& spec, DType dtype) {
  CacheSpec cache;
  cache.dtype = dtype;
  cache.shape.whole_sequences = !spec.causal;
  cache.shape.classes.emplace_back();  // the full one
  for (const LayerSpec& layer : spec.layers) AddLayer(layer, dtype, &cache);
  return cache;
}

// Of a block of each class, and a state, of the layers [first, end): as one of so many devices that
// share the KV heads has them.
double LevelBytes(const ModelSpec& spec, const CacheSpec& classes, int64_t first, int64_t end,
                  int32_t devices) {
  const std::vector<int32_t> kv_heads = CommonKvHeads(spec, classes, first, end);
  double bytes = 0;
  for (int64_t i = first; i < end; ++i) {
    if (const int32_t c = classes.class_of[i]; c >= 0) {
      const BlockBytes block = BlockBytesOf(*spec.layers[i].attention(), classes.dtype);
      bytes += static_cast<double>(block.own) / KvShares(kv_heads[c], devices) +
               static_cast<double>(block.full);
    }
    bytes += static_cast<double>(StatesOf(spec.layers[i]).bytes());
  }
  return bytes;
}

// A device's memory, and what of all its rooms' layers is kept there.
struct DeviceMemory {
  double level_bytes = 0;  // LevelBytes, some
  int64_t free_bytes = 0;  // as CacheRoom
};

// By the devices' names; the host's has none.
std::map<std::string, DeviceMemory> MemoriesOf(const ModelSpec& spec, const CacheSpec& classes,
                                               absl::Span<const CacheRoom> rooms) {
  std::map<std::string, DeviceMemory> memories;
  for (const CacheRoom& room : rooms) {
    const double own =
        LevelBytes(spec, classes, room.first, room.end, static_cast<int32_t>(room.devices.size()));
    if (own == 0) continue;
    for (const std::string& device : room.devices) {
      const auto [memory, added] = memories.try_emplace(room.free_bytes < 0 ? "" : device);
      DeviceMemory& all = memory->second;
      all.level_bytes += own;
      all.free_bytes = added ? room.free_bytes : std::min(all.free_bytes, room.free_bytes);
    }
  }
  return memories;
}

}  // namespace

int64_t DefaultCacheBytes() {
  constexpr int64_t kMost = int64_t{2} << 30;
  const int64_t available = AvailableMemoryBytes();
  return available > 0 ? std::min(kMost, available / 8) : kMost;
}

KvLayer KvLayerOf(const AttentionSpec& attention, DType dtype) {
  return {.dtype = dtype,
          .kv_heads = static_cast<int32_t>(attention.kv_heads),
          .key_dim = static_cast<int32_t>(attention.key_dim),
          .value_dim = static_cast<int32_t>(attention.value_dim)};
}

RowLayer NearRowsOf(const AttentionSpec& attention) {
  return {.dim = static_cast<int32_t>(attention.compressed ? attention.key_dim : 0)};
}

RowLayer PooledRowsOf(const AttentionSpec& attention) {
  RowLayer rows;
  if (!attention.compressed || attention.compressed->every == 0) return rows;
  rows.dim = static_cast<int32_t>(attention.key_dim);
  rows.every = static_cast<int32_t>(attention.compressed->every);
  return rows;
}

RowLayer IndexRowsOf(const AttentionSpec& attention) {
  RowLayer rows = PooledRowsOf(attention);
  if (rows.dim > 0) {
    const CompressedSpec& spec = *attention.compressed;
    rows.dim = static_cast<int32_t>(spec.index_heads > 0 ? spec.index_dim : 0);
  }
  return rows;
}

BlockBytes BlockBytesOf(const AttentionSpec& attention, DType dtype) {
  if (attention.compressed.has_value()) {
    constexpr int64_t kBytes = sizeof(float);
    return {
        NearRowsOf(attention).block_values() * kBytes,
        (PooledRowsOf(attention).block_values() + IndexRowsOf(attention).block_values()) * kBytes};
  }
  const KvLayer layer = KvLayerOf(attention, dtype);
  return {layer.keys_bytes() + layer.values_bytes(), 0};
}

std::vector<int32_t> CommonKvHeads(const ModelSpec& spec, const CacheSpec& cache, int64_t first,
                                   int64_t end) {
  std::vector<int32_t> heads(cache.shape.classes.size());
  for (int64_t i = first; i < end; ++i) {
    const int32_t c = cache.class_of[i];
    if (c < 0) continue;
    const AttentionSpec& attention = *spec.layers[i].attention();
    heads[c] = std::gcd(heads[c], static_cast<int32_t>(attention.kv_heads));
    if (attention.compressed.has_value()) heads[c] = heads[0] = 1;
  }
  return heads;
}

DType KvTypeOf(const ModelSpec& spec, bool on_gpu, DType asked) {
  const bool rows = spec.Widest([](const LayerSpec& layer) {
    return layer.attention() != nullptr && layer.attention()->compressed.has_value() ? 1 : 0;
  }) > 0;
  if (rows) return DType::kF32;
  if (spec.causal || asked == DType::kF32) return asked;
  if (on_gpu) return DType::kF16;
  return asked == DType::kI16 ? asked : DType::kF32;
}

CacheSpec SmallestCache(const ModelSpec& spec, DType dtype) {
  CacheSpec cache = ClassesOf(spec, dtype);
  for (CacheClass& c : cache.shape.classes) c.num_blocks = 1;
  if (cache.shape.state_bytes > 0) cache.shape.num_states = 1;
  return cache;
}

absl::StatusOr<CacheSpec> PlanCacheIn(const ModelSpec& spec, absl::Span<const CacheRoom> rooms,
                                      DType dtype) {
  const CacheSpec classes = ClassesOf(spec, dtype);
  const double all = LevelBytes(spec, classes, 0, spec.all_layers(), /*devices=*/1);
  double bytes = static_cast<double>(std::numeric_limits<int64_t>::max() / 2);
  int64_t free_bytes = -1;  // of the device that bounds it
  for (const auto& [device, memory] : MemoriesOf(spec, classes, rooms)) {
    const int64_t most = memory.free_bytes < 0 ? DefaultCacheBytes() : memory.free_bytes / 2;
    const double in_all = static_cast<double>(most) * all / memory.level_bytes;
    if (in_all >= bytes) continue;
    bytes = in_all;
    free_bytes = memory.free_bytes;
  }
  absl::StatusOr<CacheSpec> cache = PlanCache(spec, static_cast<int64_t>(bytes), dtype);
  if (!absl::IsInvalidArgument(cache.status()) || free_bytes < 0) return cache;
  return absl::ResourceExhaustedError(
      absl::StrCat("the KV cache may have half of the ", free_bytes,
                   " bytes that a device has free beside the weights and what steps need: ",
                   cache.status().message()));
}

absl::StatusOr<CacheSpec> PlanCache(const ModelSpec& spec, int64_t bytes, DType dtype) {
  CacheSpec cache = ClassesOf(spec, dtype);
  CacheShape& shape = cache.shape;

  int64_t left = bytes, least = 0;
  if (shape.state_bytes > 0) {
    // One runs, one is kept.
    const int64_t slots =
        std::clamp<int64_t>(bytes / 2 / shape.state_bytes, 2, kSequences + kSnapshots);
    shape.num_states = static_cast<int32_t>(slots);
    left -= slots * shape.state_bytes;
    least += 2 * shape.state_bytes;
  }
  // Blocks of a windowed class that one sequence needs, and that all can use.
  auto needed = [&](const CacheClass& c) -> int64_t {
    return c.window == 0 ? 1 : BlocksFor(std::min(c.window, spec.context_length)) + 2;
  };
  const int64_t full = int64_t{BlocksFor(spec.context_length)} * kFullSequences;
  auto useful = [&](const CacheClass& c) {
    if (c.window == 0) return full;
    return std::min<int64_t>(full, kSequences * (BlocksFor(c.window + kMostStepTokens) + 2));
  };
  for (const CacheClass& c : shape.classes) least += needed(c) * c.block_bytes;
  if (left < 0 || bytes < least) {
    return absl::InvalidArgumentError(absl::StrCat(
        "kv_bytes = ", bytes, " holds no KV block: this model needs ", least, " bytes for ",
        shape.state_bytes > 0 ? "two states and " : "", "the first ", kKvBlockTokens, " tokens"));
  }
  // Level by level: what a class cannot use is the others'.
  std::vector<CacheClass*> open;
  for (CacheClass& c : shape.classes) {
    if (c.block_bytes > 0) {
      open.push_back(&c);
    } else {
      c.num_blocks = static_cast<int32_t>(std::min(full, kEmptyBlocks));
    }
  }
  std::sort(open.begin(), open.end(),
            [&](const CacheClass* a, const CacheClass* b) { return useful(*a) < useful(*b); });
  for (size_t i = 0; i < open.size(); ++i) {
    int64_t level_bytes = 0, later = 0;  // a block of each that is left; what the others need
    for (size_t j = i; j < open.size(); ++j) {
      level_bytes += open[j]->block_bytes;
      if (j > i) later += needed(*open[j]) * open[j]->block_bytes;
    }
    const int64_t most = std::max<int64_t>((left - later) / open[i]->block_bytes, 0);
    const int64_t blocks = std::min(
        {std::max(left / level_bytes, needed(*open[i])), most, useful(*open[i]), int64_t{1} << 30});
    open[i]->num_blocks = static_cast<int32_t>(blocks);
    left -= blocks * open[i]->block_bytes;
  }
  for (const CacheClass& c : shape.classes) {
    if (c.num_blocks >= needed(c)) continue;
    return absl::InvalidArgumentError(absl::StrCat("kv_bytes = ", bytes, " holds ", c.num_blocks,
                                                   " KV blocks of ", c.block_bytes,
                                                   " bytes, a sequence needs ", needed(c)));
  }
  return cache;
}

}  // namespace lm
