#include "tests/engine/gguf/allocation_watch.h"

#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

namespace lm {
namespace {
std::atomic<size_t> allocated{0};
std::atomic<size_t> peak{0};
}  // namespace

size_t AllocatedBytes() { return allocated; }
size_t PeakBytes() { return peak; }
void ResetPeakBytes() { peak = allocated.load(); }

}  // namespace lm

void* operator new(size_t bytes) {
  void* block = std::malloc(bytes);
  if (block == nullptr) throw std::bad_alloc();
  size_t now = lm::allocated += malloc_usable_size(block);
  size_t before = lm::peak;
  while (before < now && !lm::peak.compare_exchange_weak(before, now)) {
  }
  return block;
}

void operator delete(void* block) noexcept {
  if (block == nullptr) return;
  lm::allocated -= malloc_usable_size(block);
  std::free(block);
}

void operator delete(void* block, size_t) noexcept { operator delete(block); }
