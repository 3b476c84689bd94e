#include "engine/backend/cuda/placed_attention.h"

#include <algorithm>
#include <cstring>

#include "engine/backend/cuda/table_bytes.h"
#include "engine/base/status_macros.h"

namespace lm {
namespace {

// Grids have this many more than there are tiles at most, so that few steps change them.
constexpr int64_t kTilesAtATime = 32;

}  // namespace

absl::Status PlacedAttention::BeginStep(CudaDevice* device, const StepTables& step) {
  for (Placed& placed : placed_) {
    if (placed.kept.kind().cache_class >= static_cast<int32_t>(step.blocks.size())) continue;
    RETURN_IF_ERROR(Place(device, step, &placed));
  }
  return absl::OkStatus();
}

absl::StatusOr<PlacedAttention::Plan> PlacedAttention::Find(CudaDevice* device,
                                                            const StepTables& step,
                                                            const AttentionKind& kind) {
  for (const Placed& placed : placed_) {
    if (placed.kept.kind() == kind) return placed.plan;
  }
  placed_.emplace_back(kind);
  const absl::Status status = Place(device, step, &placed_.back());  // nothing that waits reads it
  if (!status.ok()) {
    placed_.pop_back();
    return status;
  }
  return placed_.back().plan;
}

absl::Status PlacedAttention::MakeRoom(CudaDevice* device, Placed* placed) {
  const AttentionPlanSizes most = GreatestPlan(placed->kept.kind(), *bounds_);
  const size_t bytes = sizeof(int32_t) + most.tiles * sizeof(cuda::AttentionTile) +
                       (most.tokens + most.first_parts) * sizeof(int32_t) +
                       most.parts * sizeof(cuda::AttentionPart);
  RETURN_IF_ERROR(placed->memory.Reserve(device, BytesOfRooms(bytes, kParts)).status());
  placed->plan = {{}, kTilesAtATime, most.partials};
  placed->is_there = false;
  return absl::OkStatus();
}

absl::Status PlacedAttention::Place(CudaDevice* device, const StepTables& step, Placed* placed) {
  if (bounds_ != nullptr) return MakeRoom(device, placed);
  const KeptPlan::Change change = placed->kept.Follow(step);
  const AttentionPlan& plan = placed->kept.plan();
  if (placed->is_there && change == KeptPlan::Change::kNone) return absl::OkStatus();
  if (placed->is_there && change == KeptPlan::Change::kPlaces) {
    placed->is_there = false;
    const absl::Span<const char> tiles = BytesOf(plan.tiles);
    char* const base = static_cast<char*>(placed->memory.data());
    RETURN_IF_ERROR(device->Stage(tiles.data(), base + placed->begins[1], tiles.size()));
    placed->is_there = true;
    return absl::OkStatus();
  }
  placed->is_there = false;
  const std::vector<int32_t> num_tiles = {static_cast<int32_t>(plan.tiles.size())};
  const absl::Span<const char> parts[kParts] = {BytesOf(num_tiles), BytesOf(plan.tiles),
                                                BytesOf(plan.tokens), BytesOf(plan.parts),
                                                BytesOf(plan.first_parts)};
  size_t end = 0;
  size_t* const begins = placed->begins;
  for (size_t i = 0; i < kParts; ++i) {
    size_t& room = placed->rooms[i];
    room = RoomFor(parts[i].size(), room);
    begins[i] = end;
    end += room;
  }
  packed_.resize(std::max(packed_.size(), end));
  for (size_t i = 0; i < kParts; ++i) {
    std::copy(parts[i].begin(), parts[i].end(), packed_.begin() + begins[i]);
  }
  ASSIGN_OR_RETURN(void* memory, placed->memory.Reserve(device, end));
  RETURN_IF_ERROR(device->Stage(packed_.data(), memory, end));
  const char* base = static_cast<const char*>(memory);
  placed->plan = {{reinterpret_cast<const int32_t*>(base + begins[0]),
                   reinterpret_cast<const cuda::AttentionTile*>(base + begins[1]),
                   reinterpret_cast<const int32_t*>(base + begins[2]),
                   reinterpret_cast<const cuda::AttentionPart*>(base + begins[3]),
                   reinterpret_cast<const int32_t*>(base + begins[4])},
                  (num_tiles[0] + kTilesAtATime - 1) / kTilesAtATime * kTilesAtATime,
                  plan.num_partials};
  placed->is_there = true;
  return absl::OkStatus();
}

absl::StatusOr<float*> PlacedAttention::Partials(CudaDevice* device, int64_t bytes) {
  size_t room = static_cast<size_t>(bytes);
  // Within bounds nothing grows behind the greatest one.
  if (bounds_ == nullptr && room > partials_.bytes()) room = std::max(room, 2 * partials_.bytes());
  ASSIGN_OR_RETURN(void* memory, partials_.Reserve(device, room));
  return static_cast<float*>(memory);
}

}  // namespace lm
