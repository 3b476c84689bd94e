// MonotonicTime: a moment by a clock that nobody sets, for deadlines, pauses and what something
// took. An absl::Time is for what is shown or stored: its clock jumps, as far as an hour, where
// somebody sets it.
//
//   const MonotonicTime until = MonotonicTime::Now() + absl::Seconds(2);
//   while (MonotonicTime::Now() < until) ...
//   AwaitUntil(mutex_, absl::Condition(&done_), until);    // the caller holds mutex_
//
// It stands still while the machine sleeps.
#ifndef LM_ENGINE_BASE_MONOTONIC_TIME_H_
#define LM_ENGINE_BASE_MONOTONIC_TIME_H_

#include <algorithm>
#include <chrono>
#include <compare>
#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace lm {

class MonotonicTime {
 public:
  constexpr MonotonicTime() = default;  // no moment in particular

  static MonotonicTime Now() {
    return MonotonicTime(absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch()));
  }
  static constexpr MonotonicTime InfiniteFuture() {
    return MonotonicTime(absl::InfiniteDuration());
  }
  static constexpr MonotonicTime InfinitePast() { return MonotonicTime(-absl::InfiniteDuration()); }

  // For an atomic; infinite ones become as far away as an integer says.
  static MonotonicTime FromNanos(int64_t nanos) { return MonotonicTime(absl::Nanoseconds(nanos)); }
  int64_t ToNanos() const { return absl::ToInt64Nanoseconds(since_epoch_); }

  friend MonotonicTime operator+(MonotonicTime time, absl::Duration duration) {
    return MonotonicTime(time.since_epoch_ + duration);
  }
  friend absl::Duration operator-(MonotonicTime a, MonotonicTime b) {
    return a.since_epoch_ - b.since_epoch_;
  }
  friend bool operator==(MonotonicTime a, MonotonicTime b) {
    return a.since_epoch_ == b.since_epoch_;
  }
  friend std::strong_ordering operator<=>(MonotonicTime a, MonotonicTime b) {
    if (a.since_epoch_ < b.since_epoch_) return std::strong_ordering::less;
    return a == b ? std::strong_ordering::equal : std::strong_ordering::greater;
  }

 private:
  explicit constexpr MonotonicTime(absl::Duration since_epoch) : since_epoch_(since_epoch) {}

  absl::Duration since_epoch_;  // of the clock: the machine's start, as a rule
};

// Waits, with the mutex let go meanwhile, until the condition holds or that moment has come.
// Whether the condition holds. An absl::Mutex waits by the clock that jumps: a wait that is over
// too early goes on, and none is for more than a second at once. (Where the clock is set back
// during one, that one is as much longer, if the condition does not end it; its caller hears
// nothing meanwhile, no interrupt either.)
inline bool AwaitUntil(absl::Mutex& mutex, const absl::Condition& condition, MonotonicTime until)
    ABSL_SHARED_LOCKS_REQUIRED(mutex) {
  if (until == MonotonicTime::InfiniteFuture()) {
    mutex.Await(condition);
    return true;
  }
  for (;;) {
    const absl::Duration left = until - MonotonicTime::Now();
    if (left <= absl::ZeroDuration()) return condition.Eval();
    if (mutex.AwaitWithTimeout(condition, std::min(left, absl::Seconds(1)))) return true;
  }
}

}  // namespace lm

#endif  // LM_ENGINE_BASE_MONOTONIC_TIME_H_
