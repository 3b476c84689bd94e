#include "engine/base/fair_mutex.h"

#include "absl/time/time.h"
#include "engine/base/checkpoint.h"

namespace lm {

absl::Status FairMutex::Lock() {
  absl::MutexLock lock(&mutex_);
  if (!held_ && waiting_.empty()) {
    held_ = true;
    return absl::OkStatus();
  }
  CondVar called;
  const auto place = waiting_.insert(waiting_.end(), &called);
  const auto my_turn = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return !held_ && waiting_.begin() == place;
  };
  absl::Status wanted;
  while (wanted.ok() && !called.AwaitFor(mutex_, absl::Condition(&my_turn),
                                         absl::FromChrono(kCheckpointInterval))) {
    wanted = Checkpoint();
  }
  held_ = held_ || wanted.ok();
  waiting_.erase(place);
  if (!wanted.ok()) CallNext();
  return wanted;
}

// Where it is anybody's turn, tells the one whose it is.
void FairMutex::CallNext() {
  if (!held_ && !waiting_.empty()) waiting_.front()->SignalAll();
}

bool FairMutex::TryLock() {
  if (!mutex_.TryLock()) return false;
  const bool free = !held_ && waiting_.empty();
  if (free) held_ = true;
  mutex_.Unlock();
  return free;
}

void FairMutex::Unlock() {
  absl::MutexLock lock(&mutex_);
  held_ = false;
  CallNext();
}

}  // namespace lm
