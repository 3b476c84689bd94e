// CacheInspection: what the prefix cache holds for one salt, as the engine's thread sees it between
// two of its steps.
//
//   std::shared_ptr<CacheInspection> inspection = engine->InspectCache(salt);
//   while (!inspection->WaitFor(absl::Milliseconds(5))) ...
//   RETURN_IF_ERROR(inspection->status());
//   for (const PrefixTree::Run& run : inspection->runs()) ...
#ifndef LM_ENGINE_RUNTIME_CACHE_INSPECTION_H_
#define LM_ENGINE_RUNTIME_CACHE_INSPECTION_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "engine/base/cond_var.h"
#include "engine/cache/prefix_tree.h"

namespace lm {

// Thread-safe.
class CacheInspection {
 public:
  explicit CacheInspection(std::string salt) : salt_(std::move(salt)) {}

  // True when runs() can be read.
  bool WaitFor(absl::Duration timeout) {
    absl::MutexLock lock(&mutex_);
    return changed_.AwaitFor(mutex_, absl::Condition(&done_), timeout);
  }
  // REQUIRES, from here on: WaitFor has returned true.
  // OK, or why there are no runs.
  const absl::Status& status() const { return runs_.status(); }
  const std::vector<PrefixTree::Run>& runs() const { return *runs_; }

  // For the engine: once.
  const std::string& salt() const { return salt_; }
  void Finish(absl::StatusOr<std::vector<PrefixTree::Run>> runs) {
    {
      absl::MutexLock lock(&mutex_);
      runs_ = std::move(runs);
      done_ = true;
    }
    changed_.SignalAll();
  }

 private:
  const std::string salt_;
  absl::StatusOr<std::vector<PrefixTree::Run>> runs_;  // constant once done_
  absl::Mutex mutex_;
  CondVar changed_;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace lm

#endif  // LM_ENGINE_RUNTIME_CACHE_INSPECTION_H_
