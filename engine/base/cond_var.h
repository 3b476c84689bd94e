// CondVar: waits under an absl::Mutex, for some time at most, by the clock that nobody sets.
//
//   absl::MutexLock lock(&mutex_);
//   while (!changed_.AwaitFor(mutex_, absl::Condition(&done_), absl::Milliseconds(5))) ...
//
//   mutex_.Lock(); done_ = true; mutex_.Unlock();          // by another thread
//   changed_.SignalAll();                                  // or nobody hears of it
//
// The waits of absl::Mutex and absl::CondVar that end by themselves go by the clock that somebody
// sets: where it is set back by an hour meanwhile, one of 5 ms lasts an hour, deaf to interrupts.
// Mutex::Await, which has no end of its own, is as good as this.
#ifndef LM_ENGINE_BASE_COND_VAR_H_
#define LM_ENGINE_BASE_COND_VAR_H_

#include <condition_variable>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "engine/base/monotonic_time.h"

namespace lm {

// Thread-safe. Made with memory; neither waiting nor signalling takes any.
class CondVar {
 public:
  // Called after what is waited for has changed; without the mutex those who wait go on at once.
  void SignalAll() noexcept { changed_.notify_all(); }

  // Waits, with the mutex let go meanwhile, until the condition holds or that moment has come.
  // Whether the condition holds. Where the moment has come before, this does not sleep.
  bool AwaitUntil(absl::Mutex& mutex, const absl::Condition& condition, MonotonicTime until)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    Let let{mutex};
    for (;;) {
      if (condition.Eval()) return true;
      if (MonotonicTime::Now() >= until) return false;
      changed_.wait_until(let, until.ToChrono());
    }
  }
  bool AwaitFor(absl::Mutex& mutex, const absl::Condition& condition, absl::Duration most)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    return AwaitUntil(mutex, condition, MonotonicTime::Now() + most);
  }

 private:
  // The mutex in the words of the standard's.
  struct Let {
    void lock() ABSL_NO_THREAD_SAFETY_ANALYSIS { mutex.Lock(); }
    void unlock() ABSL_NO_THREAD_SAFETY_ANALYSIS { mutex.Unlock(); }
    absl::Mutex& mutex;
  };

  std::condition_variable_any changed_;
};

}  // namespace lm

#endif  // LM_ENGINE_BASE_COND_VAR_H_
