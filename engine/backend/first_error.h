// FirstError: what was wrong first, by rows, where several threads do the rows of a matrix.
#ifndef LM_ENGINE_BACKEND_FIRST_ERROR_H_
#define LM_ENGINE_BACKEND_FIRST_ERROR_H_

#include <cstdint>
#include <limits>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"

namespace lm {

// The error of the lowest rows among those that several threads find. Thread-safe.
class FirstError {
 public:
  void Add(int64_t row, absl::Status status) {
    absl::MutexLock lock(&mutex_);
    if (row < row_) {
      row_ = row;
      status_ = std::move(status);
    }
  }
  absl::Status status() const {
    absl::MutexLock lock(&mutex_);
    return status_;
  }
  // Whether there is one of rows before `row`: what comes later need not be done.
  bool Precedes(int64_t row) const {
    absl::MutexLock lock(&mutex_);
    return row_ < row;
  }

 private:
  mutable absl::Mutex mutex_;
  int64_t row_ ABSL_GUARDED_BY(mutex_) = std::numeric_limits<int64_t>::max();
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lm

#endif  // LM_ENGINE_BACKEND_FIRST_ERROR_H_
