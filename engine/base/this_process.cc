#include "engine/base/this_process.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>

namespace lm {
namespace {

constinit std::atomic<uint32_t> forks{0};  // between the process that loaded this and this one

// From the beginning: a fork may come while another thread makes the first object that asks.
[[maybe_unused]] const int counted =
    pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });

}  // namespace

// A child of clone(), which knows no handlers, has another number as a rule.
uint64_t ThisProcess() {
  return uint64_t{forks.load(std::memory_order_relaxed)} << 32 | static_cast<uint32_t>(getpid());
}

}  // namespace lm
