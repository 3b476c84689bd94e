#include "engine/base/thread_pool.h"

#include <exception>
#include <new>
#include <system_error>
#include <utility>

#include "engine/base/out_of_memory.h"
#include "engine/base/own_thread.h"
#include "engine/base/processor.h"

namespace lm {
namespace {

// About 10 microseconds of pauses: longer than the gap between two ops of a forward pass, shorter
// than anything a person or a neighbouring process would notice.
constexpr int kSpins = 400;

// Waits until `value` differs from `old`: spins first, then sleeps.
void WaitForChange(const std::atomic<uint32_t>& value, uint32_t old) {
  for (int i = 0; i < kSpins; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    PauseInSpin();
  }
  value.wait(old, std::memory_order_acquire);
}

}  // namespace

struct ThreadPool::Loop {
  absl::FunctionRef<void(int64_t)> body;
  int64_t count;
  std::atomic<int64_t> next{0};
  std::atomic<bool> failed{false};
  std::exception_ptr failure;  // of whoever set `failed`; read when all have left the loop
};

ThreadPool::ThreadPool(int num_threads) {
  workers_.reserve(num_threads - 1);
  for (int i = 1; i < num_threads; ++i) {
    try {
      workers_.push_back(StartThread([this] { WorkerMain(); }));
    } catch (const std::system_error&) {
      break;
    } catch (const std::bad_alloc&) {  // of std::thread's own
      break;
    }
  }
}

ThreadPool::~ThreadPool() {
  stopping_.store(true, std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::RunLoop(Loop* loop) {
  for (;;) {
    int64_t i = loop->next.fetch_add(1, std::memory_order_relaxed);
    if (i >= loop->count) return;
    try {
      loop->body(i);
    } catch (...) {
      loop->next.store(loop->count, std::memory_order_relaxed);
      if (!loop->failed.exchange(true)) loop->failure = std::current_exception();
      return;
    }
  }
}

void ThreadPool::WorkerMain() {
  ReadyToThrow();
  uint32_t seen = 0;
  for (;;) {
    WaitForChange(generation_, seen);
    seen = generation_.load(std::memory_order_acquire);
    if (stopping_.load(std::memory_order_relaxed)) return;
    // Announce first, look second: ParallelFor clears loop_ first and then waits for zero inside,
    // so a loop that is seen here cannot go away before this worker has left it.
    workers_inside_.fetch_add(1);
    if (Loop* loop = loop_.load()) RunLoop(loop);
    workers_inside_.fetch_sub(1);
    workers_inside_.notify_one();
  }
}

void ThreadPool::ParallelFor(int64_t count, absl::FunctionRef<void(int64_t)> body) {
  if (workers_.empty() || count <= 1) {
    for (int64_t i = 0; i < count; ++i) body(i);
    return;
  }
  absl::MutexLock lock(&loop_mutex_);
  Loop loop{body, count, {}, {}, {}};
  loop_.store(&loop);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  RunLoop(&loop);
  loop_.store(nullptr);
  for (uint32_t inside; (inside = workers_inside_.load()) != 0;) {
    WaitForChange(workers_inside_, inside);
  }
  if (loop.failure != nullptr) std::rethrow_exception(std::move(loop.failure));
}

}  // namespace lm
