// A fixed set of worker threads that split one loop at a time.
//
//   ThreadPool pool(2);
//   pool.ParallelFor(num_panels, [&](int64_t panel) { MultiplyPanel(panel); });
//
// The calling thread works too: a pool of n has n - 1 threads of its own, and a pool of 1 has none.
// Workers spin for a few microseconds between loops, then sleep on a futex, so an idle engine costs
// nothing and a host with fewer cores than threads does not drown in busy waiting.
#ifndef LM_ENGINE_BASE_THREAD_POOL_H_
#define LM_ENGINE_BASE_THREAD_POOL_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/synchronization/mutex.h"

namespace lm {

class ThreadPool {
 public:
  // REQUIRES: num_threads >= 1. Where the system gives fewer threads, the pool has fewer.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();

  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(i) once for each i in [0, count), from several threads, and returns when all are
  // done. Which thread runs which i is not defined; results must not depend on it. Loops from
  // different threads run one after the other. `body` must not call ParallelFor of the same pool.
  // What it throws comes out here, once (the first one's), and then not every i has been run.
  void ParallelFor(int64_t count, absl::FunctionRef<void(int64_t)> body);

 private:
  struct Loop;
  void WorkerMain();
  static void RunLoop(Loop* loop);

  absl::Mutex loop_mutex_;  // held while a loop runs
  // Bumped (release) for each new loop and at the end; workers wait for it to change.
  std::atomic<uint32_t> generation_{0};
  std::atomic<Loop*> loop_{nullptr};
  std::atomic<uint32_t> workers_inside_{0};  // workers that may be looking at *loop_
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> workers_;
};

}  // namespace lm

#endif  // LM_ENGINE_BASE_THREAD_POOL_H_
