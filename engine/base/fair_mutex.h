// A mutex that threads get in the order in which they came for it, and wait for no longer than
// somebody wants their result.
//
//   const FairMutexLock lock(&mutex_);
//   RETURN_IF_ERROR(lock.status());
//
// Who gives it back and takes it again at once, between the parts of a long work, lets those in who
// wait.
#ifndef LM_ENGINE_BASE_FAIR_MUTEX_H_
#define LM_ENGINE_BASE_FAIR_MUTEX_H_

#include <list>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "engine/base/cond_var.h"

namespace lm {

class ABSL_LOCKABLE FairMutex {
 public:
  // Cancelled, without the mutex, where the thread is interrupted (checkpoint.h) before its turn.
  // Takes memory only to wait.
  absl::Status Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION();
  bool TryLock() ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true);
  void Unlock() ABSL_UNLOCK_FUNCTION();

 private:
  void CallNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::Mutex mutex_;
  bool held_ ABSL_GUARDED_BY(mutex_) = false;
  // A place for each thread, which has it on its stack: of a process that was forked meanwhile
  // nothing may wait for those who are not there.
  std::list<CondVar*> waiting_ ABSL_GUARDED_BY(mutex_);
};

class ABSL_SCOPED_LOCKABLE FairMutexLock {
 public:
  explicit FairMutexLock(FairMutex* mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex)
      : mutex_(mutex), status_(mutex->Lock()) {}
  ~FairMutexLock() ABSL_UNLOCK_FUNCTION() {
    if (held()) mutex_->Unlock();
  }
  FairMutexLock(const FairMutexLock&) = delete;
  FairMutexLock& operator=(const FairMutexLock&) = delete;

  const absl::Status& status() const { return status_; }
  // REQUIRES, of whatever the mutex guards: held().
  bool held() const { return status_.ok(); }

 private:
  FairMutex* const mutex_;
  const absl::Status status_;
};

}  // namespace lm

#endif  // LM_ENGINE_BASE_FAIR_MUTEX_H_
