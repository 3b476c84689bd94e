#include "extension/connection/load_engine.h"

#include <atomic>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/synchronization/mutex.h"
#include "extension/host/boundary.h"
#include "extension/host/interrupt.h"

namespace lm {
namespace {

// One loading, shared by its thread and the one that waits.
struct Loading {
  std::atomic<bool> cancel{false};
  absl::Mutex mutex;
  bool done ABSL_GUARDED_BY(mutex) = false;
  absl::StatusOr<std::shared_ptr<Engine>> engine ABSL_GUARDED_BY(mutex);
};

void Load(const std::string& path, const ModelOptions& options, Loading* loading) noexcept {
  absl::StatusOr<std::shared_ptr<Engine>> engine;
  absl::Status status = Guarded([&] {
    engine = GetEngine(path, options, loading->cancel);
    return engine.status();
  });
  if (!status.ok()) engine = status;
  absl::MutexLock lock(&loading->mutex);
  loading->engine = std::move(engine);
  loading->done = true;
}

}  // namespace

absl::StatusOr<std::shared_ptr<Engine>> LoadEngine(sqlite3* db, const std::string& path,
                                                   const ModelOptions& options) {
  auto loading = std::make_shared<Loading>();
  try {
    std::thread([loading, path, options]() mutable {
      ReadyToThrow();
      Load(path, options, loading.get());
      loading.reset();  // and with it an engine that nobody waits for
    }).detach();
  } catch (const std::system_error&) {  // no more threads: then without one
    return GetEngine(path, options);
  }
  InterruptPoll poll(db);
  absl::MutexLock lock(&loading->mutex);
  while (!loading->mutex.AwaitWithTimeout(absl::Condition(&loading->done), kInterruptInterval)) {
    if (!poll.Interrupted()) continue;
    loading->cancel = true;
    return absl::CancelledError("interrupted");
  }
  return std::move(loading->engine);
}

}  // namespace lm
