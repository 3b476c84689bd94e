#include "engine/backend/cuda/placed_step.h"

#include <algorithm>
#include <cstring>

#include "engine/backend/cuda/table_bytes.h"
#include "engine/base/status_macros.h"

namespace lm {
namespace {

// A rope of no more bytes comes with the tables.
constexpr size_t kSmallRope = size_t{32} << 10;

}  // namespace

absl::Status PlacedStep::Place(CudaDevice* device, const StepTables& tables, const StepIndex& index,
                               absl::Span<const int32_t> picked) {
  RETURN_IF_ERROR(device->Flush());  // what waits reads the tables of the step before
  sequences_.clear();
  sequence_of_row_.clear();
  for (const StepSequence& s : tables.sequences) {
    sequence_of_row_.insert(sequence_of_row_.end(), s.num_tokens,
                            static_cast<int32_t>(sequences_.size()));
    sequences_.push_back({s.first_row, s.num_tokens, s.first_position, s.first_block, s.state});
  }
  tokens_ = tables.tokens;
  for (int32_t& token : tokens_) {
    if (token < 0) token = picked[~token] < 0 ? 0 : ~picked[~token];
  }
  std::vector<absl::Span<const char>> parts = {BytesOf(tokens_), BytesOf(sequences_),
                                               BytesOf(sequence_of_row_)};
  for (size_t i = 0; i < tables.blocks.size(); ++i) {
    parts.push_back(BytesOf(index.slots[i]));
    parts.push_back(BytesOf(tables.blocks[i]));
  }
  first_list_ = static_cast<int32_t>(parts.size());
  for (const std::vector<int32_t>& list : tables.row_lists) parts.push_back(BytesOf(list));
  const size_t first_rope = parts.size();
  first_rope_ = static_cast<int32_t>(first_rope);
  rope_dims_.clear();
  for (const RopeTable& rope : tables.ropes) {
    parts.push_back(BytesOf(rope.angles));
    rope_dims_.push_back(rope.dim);
  }

  if (device->rehearses()) {
    size_t bytes = 0;
    for (const absl::Span<const char> part : parts) bytes += part.size();
    ASSIGN_OR_RETURN(void* room, memory_.Reserve(device, BytesOfRooms(bytes, parts.size())));
    piece_ = room;
    begins_.assign(parts.size(), 0);
    return absl::OkStatus();
  }
  rooms_.resize(std::max(rooms_.size(), first_rope));
  rope_rooms_.resize(std::max(rope_rooms_.size(), tables.ropes.size()));
  begins_.clear();
  size_t end = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    size_t& room = i < first_rope ? rooms_[i] : rope_rooms_[i - first_rope];
    room = RoomFor(parts[i].size(), room);
    begins_.push_back(end);
    end += room;
  }
  ASSIGN_OR_RETURN(piece_, memory_.Reserve(device, end));
  const bool has_small_rope = !tables.ropes.empty() && parts[first_rope].size() <= kSmallRope;
  const size_t together = first_rope + (has_small_rope ? 1 : 0);
  const size_t bytes = begins_[together - 1] + parts[together - 1].size();
  packed_.resize(std::max(packed_.size(), bytes));
  for (size_t i = 0; i < together; ++i) {
    std::copy(parts[i].begin(), parts[i].end(), packed_.begin() + begins_[i]);
  }
  RETURN_IF_ERROR(device->Stage(packed_.data(), piece_, bytes));
  for (size_t i = together; i < parts.size(); ++i) {
    RETURN_IF_ERROR(
        device->Stage(parts[i].data(), static_cast<char*>(piece_) + begins_[i], parts[i].size()));
  }
  return absl::OkStatus();
}

}  // namespace lm
