#include "tests/engine/base/failing_allocation.h"

#include <cstdlib>
#include <new>

namespace lm {
namespace {
thread_local int until_failure = 0;  // 0: none fails
}  // namespace

int FailEachAllocation(absl::FunctionRef<void()> run) {
  for (int failed = 0;; ++failed) {
    until_failure = failed + 1;
    try {
      run();
    } catch (const std::bad_alloc&) {
    }
    const bool none_failed = until_failure > 0;
    until_failure = 0;
    if (none_failed) return failed;
  }
}

}  // namespace lm

void* operator new(size_t bytes) {
  if (lm::until_failure > 0 && --lm::until_failure == 0) throw std::bad_alloc();
  void* block = std::malloc(bytes);
  if (block == nullptr) throw std::bad_alloc();
  return block;
}

void operator delete(void* block) noexcept { std::free(block); }
void operator delete(void* block, size_t) noexcept { std::free(block); }
