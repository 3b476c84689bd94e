#include "engine/backend/cuda/placed_step.h"

#include <algorithm>
#include <cstring>

#include "engine/backend/cuda/table_bytes.h"
#include "engine/base/status_macros.h"

namespace lm {
absl::Status PlacedStep::Place(CudaDevice* device, const StepTables& tables,
                               const StepIndex& index) {
  RETURN_IF_ERROR(device->Flush());  // what waits reads the tables of the step before
  sequences_.clear();
  sequence_of_row_.clear();
  for (const StepSequence& s : tables.sequences) {
    sequence_of_row_.insert(sequence_of_row_.end(), s.num_tokens,
                            static_cast<int32_t>(sequences_.size()));
    sequences_.push_back({s.first_row, s.num_tokens, s.first_position, s.first_block, s.state});
  }
  std::vector<absl::Span<const char>> parts = {BytesOf(tables.tokens), BytesOf(sequences_),
                                               BytesOf(sequence_of_row_)};
  for (size_t i = 0; i < tables.blocks.size(); ++i) {
    parts.push_back(BytesOf(index.slots[i]));
    parts.push_back(BytesOf(tables.blocks[i]));
  }
  first_list_ = static_cast<int32_t>(parts.size());
  for (const std::vector<int32_t>& list : tables.row_lists) parts.push_back(BytesOf(list));

  if (device->rehearses()) {
    size_t bytes = 0;
    for (const absl::Span<const char> part : parts) bytes += part.size();
    ASSIGN_OR_RETURN(void* room, memory_.Reserve(device, BytesOfRooms(bytes, parts.size())));
    piece_ = room;
    begins_.assign(parts.size(), 0);
    return PlaceRopes(device, tables);
  }
  rooms_.resize(std::max(rooms_.size(), parts.size()));
  begins_.clear();
  size_t end = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    rooms_[i] = RoomFor(parts[i].size(), rooms_[i]);
    begins_.push_back(end);
    end += rooms_[i];
  }
  packed_.resize(std::max(packed_.size(), end));
  for (size_t i = 0; i < parts.size(); ++i) {
    std::copy(parts[i].begin(), parts[i].end(), packed_.begin() + begins_[i]);
  }
  ASSIGN_OR_RETURN(void* piece, memory_.Reserve(device, end));
  piece_ = piece;
  RETURN_IF_ERROR(device->Stage(packed_.data(), piece, end));
  return PlaceRopes(device, tables);
}

absl::Status PlacedStep::PlaceRopes(CudaDevice* device, const StepTables& tables) {
  const int64_t rows = static_cast<int64_t>(tables.tokens.size());
  if (ropes_.size() < tables.ropes.size()) ropes_.resize(tables.ropes.size());
  for (size_t i = 0; i < tables.ropes.size(); ++i) {
    const RopeTable& rope = tables.ropes[i];
    const absl::Span<const char> bytes = BytesOf(rope.angles);
    CudaScratch& memory = ropes_[i].memory;
    ASSIGN_OR_RETURN(void* angles, memory.Reserve(device, RoomFor(bytes.size(), memory.bytes())));
    ropes_[i].angles = {static_cast<float*>(angles), rows, rope.dim, rope.dim};
    RETURN_IF_ERROR(device->Stage(bytes.data(), angles, bytes.size()));
  }
  return absl::OkStatus();
}

}  // namespace lm
