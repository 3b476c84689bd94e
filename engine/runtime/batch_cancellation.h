// BatchCancellation stops a running step when all of its requests have been abandoned.
//
// The engine says which requests are in the step; Request::Cancel says that one of them is not
// wanted any more. When none is, the flag that LanguageModel::Run polls goes up. Cancelling is rare
// and may look at the whole batch; polling is a relaxed load.
#ifndef LM_ENGINE_RUNTIME_BATCH_CANCELLATION_H_
#define LM_ENGINE_RUNTIME_BATCH_CANCELLATION_H_

#include <atomic>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace lm {

class Request;

// Thread-safe.
class BatchCancellation {
 public:
  // For LanguageModel::Run.
  const std::atomic<bool>& flag() const { return flag_; }

  // A step with these requests, as long as it lives; they live longer.
  class Step {
   public:
    Step(BatchCancellation* cancellation, std::vector<const Request*> requests)
        : cancellation_(cancellation) {
      cancellation_->SetStep(std::move(requests));
    }
    ~Step() { cancellation_->SetStep({}); }
    Step(const Step&) = delete;
    Step& operator=(const Step&) = delete;

   private:
    BatchCancellation* const cancellation_;
  };

  // A request has just been cancelled (its cancelled() is true already).
  void OnCancel();
  // How often OnCancel was called. While the number stays, no further request was cancelled.
  uint64_t num_cancels() const { return num_cancels_.load(std::memory_order_acquire); }

  // Raises the flag for good.
  void Stop();
  bool stopped() const;

 private:
  void SetStep(std::vector<const Request*> requests);
  void Update() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  std::atomic<bool> flag_{false};
  std::atomic<uint64_t> num_cancels_{0};
  mutable absl::Mutex mutex_;
  std::vector<const Request*> requests_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace lm

#endif  // LM_ENGINE_RUNTIME_BATCH_CANCELLATION_H_
