#include "engine/runtime/batch_cancellation.h"

#include <algorithm>
#include <utility>

#include "engine/runtime/request.h"

namespace lm {

void BatchCancellation::SetStep(std::vector<const Request*> requests) {
  absl::MutexLock lock(&mutex_);
  requests_.swap(requests);
  Update();
}

void BatchCancellation::OnCancel() {
  num_cancels_.fetch_add(1, std::memory_order_release);
  absl::MutexLock lock(&mutex_);
  Update();
}

void BatchCancellation::Stop() {
  absl::MutexLock lock(&mutex_);
  stopped_ = true;
  Update();
}

bool BatchCancellation::stopped() const {
  absl::MutexLock lock(&mutex_);
  return stopped_;
}

void BatchCancellation::Update() {
  const bool all =
      !requests_.empty() && std::all_of(requests_.begin(), requests_.end(),
                                        [](const Request* r) { return r->abandoned(); });
  flag_.store(stopped_ || all, std::memory_order_relaxed);
}

}  // namespace lm
