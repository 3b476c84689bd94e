// MonotonicTime: a moment by a clock that nobody sets, for deadlines, pauses and what something
// took. An absl::Time is for what is shown or stored: its clock jumps, as far as an hour, where
// somebody sets it.
//
//   const MonotonicTime until = MonotonicTime::Now() + absl::Seconds(2);
//   while (MonotonicTime::Now() < until) ...
//   changed_.AwaitUntil(mutex_, absl::Condition(&done_), until);    // a CondVar (cond_var.h)
//
// It stands still while the machine sleeps.
#ifndef LM_ENGINE_BASE_MONOTONIC_TIME_H_
#define LM_ENGINE_BASE_MONOTONIC_TIME_H_

#include <chrono>
#include <compare>
#include <cstdint>

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
  // Likewise, for what waits.
  std::chrono::steady_clock::time_point ToChrono() const {
    return std::chrono::steady_clock::time_point(absl::ToChronoNanoseconds(since_epoch_));
  }

  friend MonotonicTime operator+(MonotonicTime time, absl::Duration duration) {
    return MonotonicTime(time.since_epoch_ + duration);
  }
  MonotonicTime& operator+=(absl::Duration duration) {
    since_epoch_ += duration;
    return *this;
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

}  // namespace lm

#endif  // LM_ENGINE_BASE_MONOTONIC_TIME_H_
