#include "engine/remote/download_list.h"

#include <algorithm>
#include <list>
#include <utility>

#include "absl/time/clock.h"
#include "engine/runtime/fork_guard.h"

namespace lm {
namespace {

constexpr size_t kMostKept = 100;

// Never destroyed.
struct DownloadRecord {
  const ForkGuard fork_guard;
  absl::Mutex mutex;
  std::list<std::shared_ptr<Download>> downloads ABSL_GUARDED_BY(mutex);

  static DownloadRecord& Instance() {
    static DownloadRecord* const list = new DownloadRecord();
    return *list;
  }
};

}  // namespace

Download::Download(std::string source, std::string path)
    : source_(std::move(source)), path_(std::move(path)), began_(absl::Now()) {}

std::shared_ptr<Download> Download::Begin(std::string source, std::string path) {
  std::shared_ptr<Download> download(new Download(std::move(source), std::move(path)));
  DownloadRecord& list = DownloadRecord::Instance();
  absl::MutexLock lock(&list.mutex);
  list.downloads.push_back(download);
  if (list.downloads.size() > kMostKept) list.downloads.pop_front();
  return download;
}

void Download::Run() {
  absl::MutexLock lock(&mutex_);
  state_ = "running";
}

void Download::End(const absl::Status& status) noexcept {
  absl::MutexLock lock(&mutex_);
  state_ = status.ok() ? "done" : "failed";
  status_ = status;  // without an allocation
  ended_ = MonotonicTime::Now();
}

DownloadInfo Download::Info() const {
  absl::MutexLock lock(&mutex_);
  return {.source = source_,
          .path = path_,
          .bytes = bytes_,
          .total = total_,
          .resumed = resumed_,
          .state = state_,
          .error = std::string(status_.message()),
          .began = began_,
          .elapsed = std::min(ended_, MonotonicTime::Now()) - begun_};
}

std::vector<DownloadInfo> Downloads() {
  DownloadRecord& list = DownloadRecord::Instance();
  std::vector<DownloadInfo> infos;
  if (list.fork_guard.forked()) return infos;
  absl::MutexLock lock(&list.mutex);
  for (const std::shared_ptr<Download>& download : list.downloads) {
    infos.push_back(download->Info());
  }
  return infos;
}

}  // namespace lm
