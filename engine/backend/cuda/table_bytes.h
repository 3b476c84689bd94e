// Tables that lie side by side in a piece of a device's memory, each in a room of its own.
#ifndef LM_ENGINE_BACKEND_CUDA_TABLE_BYTES_H_
#define LM_ENGINE_BACKEND_CUDA_TABLE_BYTES_H_

#include <algorithm>
#include <cstddef>
#include <vector>

#include "absl/types/span.h"

namespace lm {

inline constexpr size_t kTableAlignment = 16;

template <typename T>
absl::Span<const char> BytesOf(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// Room for `bytes` where there was `room`: at least twice the old one where it is not enough, so
// that tables which grow a little every so often seldom move.
inline size_t RoomFor(size_t bytes, size_t room) {
  if (bytes <= room) return room;
  return (std::max(bytes, 2 * room) + kTableAlignment - 1) / kTableAlignment * kTableAlignment;
}

// What rooms take together at most that have grown to so many bytes of tables as RoomFor has them.
inline size_t BytesOfRooms(size_t bytes, size_t rooms) {
  return 2 * bytes + rooms * kTableAlignment;
}

}  // namespace lm

#endif  // LM_ENGINE_BACKEND_CUDA_TABLE_BYTES_H_
