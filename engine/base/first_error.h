// FirstError: what was wrong first, by places, where several threads share the rows of a matrix or
// the pieces of a file.
#ifndef LM_ENGINE_BASE_FIRST_ERROR_H_
#define LM_ENGINE_BASE_FIRST_ERROR_H_

#include <cstdint>
#include <limits>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"

namespace lm {

// The error of the lowest place among those that several threads find. Thread-safe.
class FirstError {
 public:
  void Add(int64_t place, absl::Status status) {
    absl::MutexLock lock(&mutex_);
    if (place < place_) {
      place_ = place;
      status_ = std::move(status);
    }
  }
  absl::Status status() const {
    absl::MutexLock lock(&mutex_);
    return status_;
  }
  // Whether there is one before `place`: what comes later need not be done.
  bool Precedes(int64_t place) const {
    absl::MutexLock lock(&mutex_);
    return place_ < place;
  }

 private:
  mutable absl::Mutex mutex_;
  int64_t place_ ABSL_GUARDED_BY(mutex_) = std::numeric_limits<int64_t>::max();
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lm

#endif  // LM_ENGINE_BASE_FIRST_ERROR_H_
