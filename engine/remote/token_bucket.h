// TokenBucket: so many a minute, of which a second's worth may come at once.
//
//   TokenBucket bucket(600);
//   if (bucket.HasOne(now, &next)) bucket.Take(1);      // else not before `next`
//
// What is taken may be more than there is, which later ones wait for; so a large amount comes to
// its turn among small ones.
#ifndef LM_ENGINE_REMOTE_TOKEN_BUCKET_H_
#define LM_ENGINE_REMOTE_TOKEN_BUCKET_H_

#include <algorithm>
#include <cstdint>

#include "absl/time/time.h"
#include "engine/base/monotonic_time.h"

namespace lm {

// Not thread-safe.
class TokenBucket {
 public:
  // 0: any number.
  explicit TokenBucket(int64_t per_minute) : rate_(static_cast<double>(per_minute) / 60) {}

  // False: *next is not later than when there is one.
  bool HasOne(MonotonicTime now, MonotonicTime* next) {
    if (rate_ == 0) return true;
    level_ = std::min(most(), level_ + rate_ * absl::ToDoubleSeconds(now - at_));
    at_ = now;
    if (level_ >= 1) return true;
    *next = std::min(*next, now + absl::Seconds((1 - level_) / rate_));
    return false;
  }
  void Take(double amount) { level_ -= amount; }
  // What was taken and not used.
  void GiveBack(double amount) { level_ = std::min(most(), level_ + amount); }

 private:
  double most() const { return std::max(rate_, 1.0); }

  const double rate_;  // a second
  double level_ = 1;   // as of at_
  MonotonicTime at_ = MonotonicTime::Now();
};

}  // namespace lm

#endif  // LM_ENGINE_REMOTE_TOKEN_BUCKET_H_
