// IntegerMap: from integers to small values, in one array, for what is looked up at every step.
//
//   IntegerMap<int32_t> ids;
//   ids.Insert(key, 7);                        // throws std::bad_alloc, and then nothing changed
//   if (const int32_t* id = ids.Find(key)) ...
#ifndef LM_ENGINE_BASE_INTEGER_MAP_H_
#define LM_ENGINE_BASE_INTEGER_MAP_H_

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/hash/hash.h"

namespace lm {

// Not thread-safe. Open addressing with linear probing, at most three quarters full.
template <typename Value>
class IntegerMap {
  static_assert(std::is_nothrow_copy_assignable_v<Value> &&
                std::is_nothrow_default_constructible_v<Value>);

 public:
  // Null where the key is not there. Valid until the next Insert, Reserve or Clear.
  const Value* Find(uint64_t key) const {
    if (size_ == 0) return nullptr;
    const Slot& slot = slots_[Place(slots_, key)];
    return slot.full ? &slot.value : nullptr;
  }
  bool Contains(uint64_t key) const { return Find(key) != nullptr; }

  // False, and nothing changes, where the key is there already.
  bool Insert(uint64_t key, Value value = {}) {
    if (4 * (size_ + 1) > 3 * slots_.size()) Reserve(2 * size_ + 1);
    Slot& slot = slots_[Place(slots_, key)];
    if (slot.full) return false;
    slot = {key, value, true};
    ++size_;
    return true;
  }

  // Makes room for so many keys in all.
  void Reserve(size_t size) {
    size_t capacity = 8;
    while (4 * size > 3 * capacity) capacity *= 2;
    if (capacity <= slots_.size()) return;
    std::vector<Slot> grown(capacity);
    for (const Slot& slot : slots_) {
      if (slot.full) grown[Place(grown, slot.key)] = slot;
    }
    slots_.swap(grown);
  }

  // Forgets all keys, and most of the memory of many.
  void Clear() {
    if (slots_.size() > 256) {
      slots_ = std::vector<Slot>();
    } else {
      for (Slot& slot : slots_) slot.full = false;
    }
    size_ = 0;
  }

  size_t size() const { return size_; }

 private:
  struct Slot {
    uint64_t key = 0;
    Value value = {};
    bool full = false;
  };

  // Where the key is, or would go. REQUIRES: there is an empty slot.
  static size_t Place(const std::vector<Slot>& slots, uint64_t key) {
    const size_t mask = slots.size() - 1;
    size_t at = absl::HashOf(key) & mask;  // another in every process: keys may be a stranger's
    while (slots[at].full && slots[at].key != key) at = (at + 1) & mask;
    return at;
  }

  std::vector<Slot> slots_;  // 0 or a power of two
  size_t size_ = 0;
};

struct NoValue {};
using IntegerSet = IntegerMap<NoValue>;

}  // namespace lm

#endif  // LM_ENGINE_BASE_INTEGER_MAP_H_
