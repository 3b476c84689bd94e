// The memory that kernels may use: allocations, and a thread block's shared memory. Each word has a
// shadow that says who has read and written it last, so that accesses without a barrier between
// them are found whatever order the threads run in here.
#ifndef LM_TESTS_ENGINE_BACKEND_CUDA_ON_HOST_DEVICE_MEMORY_H_
#define LM_TESTS_ENGINE_BACKEND_CUDA_ON_HOST_DEVICE_MEMORY_H_

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

namespace lm::on_host {

// An access of a thread, in 64 bits: which thread of which run of a thread block, when, and which
// bytes of the word.
//
// Time is a count of the barriers of the block's run. What a thread does is ordered behind what
// another one did before the last barrier that both have passed: the block's, or their warp's.
class Stamp {
 public:
  static constexpr uint32_t kMostRuns = 1u << 22;

  Stamp() = default;
  Stamp(uint32_t run, uint32_t thread, uint32_t time, bool atomic, uint32_t bytes)
      : bits_(uint64_t{run} << 42 | uint64_t{thread} << 32 | uint64_t{time & kTime} << 5 |
              uint64_t{atomic} << 4 | bytes) {}
  bool is_somebody() const { return bits_ != 0; }
  uint32_t run() const { return static_cast<uint32_t>(bits_ >> 42); }
  uint32_t thread() const { return static_cast<uint32_t>(bits_ >> 32 & 1023); }
  uint32_t time() const { return static_cast<uint32_t>(bits_ >> 5 & kTime); }
  bool atomic() const { return (bits_ >> 4 & 1) != 0; }
  uint32_t bytes() const { return static_cast<uint32_t>(bits_ & 15); }
  void AddBytes(uint32_t bytes) { bits_ |= bytes; }

 private:
  static constexpr uint32_t kTime = (1u << 27) - 1;
  uint64_t bits_ = 0;  // 0: nobody, as no run has the number 0
};

// The thread that makes an access, and what lies behind a barrier for it.
struct Accessor {
  uint32_t run;        // of the thread block, from 1 on
  uint32_t first_run;  // of the launch
  uint32_t thread;
  uint32_t time;
  uint32_t block_time;  // of the last barrier of the block
  uint32_t warp_time;   // of the warp
};

// A word's last write, and two of the reads since the last barrier of the block: the first one and
// the last one by another thread. (Of more readers some can be forgotten, as can be a write of part
// of a word where others write the other parts: a race of many words is found all the same.)
struct Word {
  Stamp write, first_read, last_read;
};

enum class AccessKind { kRead, kWrite, kAtomic };

// Whether an earlier access is ordered before `by`, or is no concern of it.
inline bool IsBehind(const Accessor& by, const Stamp& earlier, uint32_t bytes, bool atomic) {
  if ((earlier.bytes() & bytes) == 0 || earlier.run() < by.first_run) return true;
  if (atomic && earlier.atomic()) return true;
  if (earlier.run() != by.run) return false;  // another block of the launch
  if (earlier.thread() == by.thread || earlier.time() < by.block_time) return true;
  return earlier.thread() / 32 == by.thread / 32 && earlier.time() < by.warp_time;
}

// Notes an access to some bytes of a word. Returns the stamp of another thread's access that no
// barrier orders before it, of which one writes; nobody's where there is none.
inline Stamp NoteAccess(const Accessor& by, AccessKind kind, uint32_t bytes, Word* word) {
  const bool atomic = kind == AccessKind::kAtomic;
  const Stamp own(by.run, by.thread, by.time, atomic, bytes);
  Stamp found;
  if (!IsBehind(by, word->write, bytes, atomic)) found = word->write;
  Stamp& first = word->first_read;
  if (kind == AccessKind::kRead) {
    if (first.run() != by.run || first.time() < by.block_time) {
      first = own;
    } else if (first.thread() == by.thread) {
      first.AddBytes(bytes);
    } else {
      word->last_read = own;
    }
    return found;
  }
  if (!IsBehind(by, word->last_read, bytes, atomic)) found = word->last_read;
  if (!IsBehind(by, first, bytes, atomic)) found = first;
  word->write = own;
  return found;
}

// A run of memory.
struct Region {
  std::string name;
  uintptr_t begin = 0, end = 0;
  bool shared = false;
  int device = 0;                 // whose it is
  Word* words = nullptr;          // zeros until they are used
  std::vector<uint16_t> copying;  // shared: a word's thread + 1, while a copy of its may arrive
  uint32_t* sectors = nullptr;    // who has touched them: access_counts.cc

  Region(std::string name, uintptr_t begin, uintptr_t end, bool shared, int device = 0);
  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;
  Word* word(uintptr_t address) const { return words + (address / 4 - begin / 4); }
  void Forget();  // all stamps
};

// Allocations, with room around them that nobody may touch. REQUIRES (both): no kernel runs.
void* AllocateOnDevice(int device, size_t bytes);
void FreeOnDevice(void* data);
int64_t NumAllocations();
int64_t BytesAllocated(int device = 0);

// From now on the kernels of `device` may read the allocations of `peer`.
void LetRead(int device, int peer);
bool MayRead(int device, int peer);

// The allocation that an address is in, or null.
Region* AllocationOf(uintptr_t address);
// Whether [data, data + bytes) is inside of one of the device's.
bool IsAllocated(int device, const void* data, size_t bytes);
// For messages: "4 bytes behind the end of an allocation of 128 bytes", or the like.
std::string Describe(uintptr_t address);
void ForgetAccesses();  // of all allocations

}  // namespace lm::on_host

#endif  // LM_TESTS_ENGINE_BACKEND_CUDA_ON_HOST_DEVICE_MEMORY_H_
