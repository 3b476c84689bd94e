// What this process downloads, or has downloaded: for lm_downloads.
#ifndef LM_ENGINE_REMOTE_DOWNLOAD_LIST_H_
#define LM_ENGINE_REMOTE_DOWNLOAD_LIST_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "engine/base/monotonic_time.h"

namespace lm {

struct DownloadInfo {
  std::string source;             // what was asked for: hf:...
  std::string path;               // where the file is, or will be
  int64_t bytes = 0;              // that are there
  int64_t total = 0;              // 0: not known yet
  int64_t resumed = 0;            // of the bytes, those that were there before
  const char* state = "waiting";  // running, done, failed
  std::string error;
  absl::Time began;
  absl::Duration elapsed;
};

// One file on its way. Thread-safe.
class Download {
 public:
  // Notes it in the process's list, which keeps the last hundred.
  static std::shared_ptr<Download> Begin(std::string source, std::string path);

  void SetTotal(int64_t total) { total_ = total; }
  void Resume(int64_t bytes) { bytes_ = resumed_ = bytes; }
  void Add(int64_t bytes) { bytes_ += bytes; }
  int64_t bytes() const { return bytes_; }
  void Run();
  void End(const absl::Status& status) noexcept;
  DownloadInfo Info() const;

 private:
  Download(std::string source, std::string path);

  const std::string source_, path_;
  const absl::Time began_;  // to be shown
  const MonotonicTime begun_ = MonotonicTime::Now();
  std::atomic<int64_t> bytes_{0}, total_{0}, resumed_{0};
  mutable absl::Mutex mutex_;
  const char* state_ ABSL_GUARDED_BY(mutex_) = "waiting";
  absl::Status status_ ABSL_GUARDED_BY(mutex_);  // it ended with
  MonotonicTime ended_ ABSL_GUARDED_BY(mutex_) = MonotonicTime::InfiniteFuture();
};

// The oldest first; none in a forked child.
std::vector<DownloadInfo> Downloads();

}  // namespace lm

#endif  // LM_ENGINE_REMOTE_DOWNLOAD_LIST_H_
