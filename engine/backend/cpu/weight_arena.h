// Memory for weights, cut from pieces of many huge pages. A matrix of its own mapping has at most
// as many of these as it fills: none where it is smaller than one, as experts are.
#ifndef LM_ENGINE_BACKEND_CPU_WEIGHT_ARENA_H_
#define LM_ENGINE_BACKEND_CPU_WEIGHT_ARENA_H_

#include <cstddef>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "engine/tensor/buffer.h"

namespace lm {

// One thread at a time. What it gave may outlive it.
class WeightArena {
 public:
  // Zeroed memory on a cache line. A piece goes back to the system with the last that is of it.
  absl::StatusOr<Buffer> Allocate(size_t bytes) {
    if (bytes > kLarge) return Buffer::AllocateHost(bytes);
    if (piece_ == nullptr || used_ + bytes > piece_->bytes()) {
      absl::StatusOr<Buffer> buffer = Buffer::AllocateHost(kPieceBytes);
      if (!buffer.ok()) return Buffer::AllocateHost(bytes);
      piece_ = std::make_shared<Buffer>(*std::move(buffer));
      used_ = 0;
    }
    Buffer part(piece_->chars().data() + used_, bytes, [piece = piece_](void*, size_t) {});
    used_ += (bytes + 63) / 64 * 64;
    return part;
  }

 private:
  static constexpr size_t kPieceBytes = size_t{64} << 20;
  static constexpr size_t kLarge = kPieceBytes / 4;  // what has enough of its own

  std::shared_ptr<Buffer> piece_;
  size_t used_ = 0;
};

}  // namespace lm

#endif  // LM_ENGINE_BACKEND_CPU_WEIGHT_ARENA_H_
