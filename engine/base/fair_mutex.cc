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
  const auto place = waiting_.insert(waiting_.end(), 0);
  const auto my_turn = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return !held_ && waiting_.begin() == place;
  };
  absl::Status wanted;
  while (wanted.ok() && !mutex_.AwaitWithTimeout(absl::Condition(&my_turn),
                                                 absl::FromChrono(kCheckpointInterval))) {
    wanted = Checkpoint();
  }
  held_ = held_ || wanted.ok();
  waiting_.erase(place);
  return wanted;
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
}

}  // namespace lm
