#include "engine/backend/cuda/placed_attention.h"

#include <algorithm>
#include <cstring>

#include "engine/base/status_macros.h"

namespace lm {

absl::StatusOr<cuda::AttentionTiles> PlacedAttention::Find(CudaDevice* device,
                                                           const StepTables& step,
                                                           const AttentionKind& kind) {
  for (size_t i = 0; i < used_; ++i) {
    if (placed_[i].key == kind.key()) return placed_[i].tiles;
  }
  if (placed_.size() == used_) placed_.emplace_back();
  Placed& placed = placed_[used_];
  PlanAttention(step, kind, &plan_);
  packed_.clear();
  auto pack = [this](const auto& values) {
    constexpr size_t kAlignment = 16;
    const size_t at = packed_.size(), bytes = values.size() * sizeof(values[0]);
    packed_.resize((at + bytes + kAlignment - 1) / kAlignment * kAlignment);
    if (bytes > 0) std::memcpy(packed_.data() + at, values.data(), bytes);
    return at;
  };
  const size_t tiles = pack(plan_.tiles), tokens = pack(plan_.tokens);
  const size_t parts = pack(plan_.parts), first_parts = pack(plan_.first_parts);
  const size_t room = std::max(packed_.size(), placed.memory.bytes());
  ASSIGN_OR_RETURN(void* memory,
                   placed.memory.Reserve(device, packed_.size() > placed.memory.bytes()
                                                     ? 2 * packed_.size()
                                                     : room));
  RETURN_IF_ERROR(device->Upload(packed_.data(), memory, packed_.size()));
  const char* base = static_cast<const char*>(memory);
  placed.key = kind.key();
  placed.tiles = {reinterpret_cast<const cuda::AttentionTile*>(base + tiles),
                  static_cast<int64_t>(plan_.tiles.size()),
                  reinterpret_cast<const int32_t*>(base + tokens),
                  reinterpret_cast<const cuda::AttentionPart*>(base + parts),
                  reinterpret_cast<const int32_t*>(base + first_parts),
                  plan_.num_partials};
  ++used_;
  return placed.tiles;
}

absl::StatusOr<float*> PlacedAttention::Partials(CudaDevice* device, int64_t bytes) {
  const size_t wanted = static_cast<size_t>(bytes);
  ASSIGN_OR_RETURN(void* memory,
                   partials_.Reserve(device, wanted > partials_.bytes()
                                                 ? std::max(wanted, 2 * partials_.bytes())
                                                 : wanted));
  return static_cast<float*>(memory);
}

}  // namespace lm
