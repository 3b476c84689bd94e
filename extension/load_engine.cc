#include "extension/load_engine.h"

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/synchronization/mutex.h"
#include "extension/boundary.h"
#include "extension/interrupt.h"

namespace lm {
namespace {

// The loading threads of this process. Never destroyed.
class Loaders {
 public:
  static Loaders& Instance() {
    static Loaders* const loaders = [] {
      auto* made = new Loaders();
      std::atexit([] { Instance().WaitForAll(); });
      return made;
    }();
    return *loaders;
  }

  void Begin() { ++running_; }
  void End() {
    --running_;
    running_.notify_all();
  }

 private:
  // A thread that outlived exit() would use what static destructors have taken away.
  void WaitForAll() {
    if (getpid() != owner_) return;  // a forked child has none of them
    for (int running = running_; running != 0; running = running_) running_.wait(running);
  }

  const pid_t owner_ = getpid();
  std::atomic<int> running_{0};  // no mutex: it might be locked in a forked child
};

// One loading, shared by its thread and the one that waits.
struct Loading {
  absl::Mutex mutex;
  bool done ABSL_GUARDED_BY(mutex) = false;
  absl::StatusOr<std::shared_ptr<Engine>> engine ABSL_GUARDED_BY(mutex);
};

void Load(const std::string& path, const ModelOptions& options, Loading* loading) noexcept {
  absl::StatusOr<std::shared_ptr<Engine>> engine;
  absl::Status status = Guarded([&] {
    engine = GetEngine(path, options);
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
  Loaders::Instance().Begin();
  try {
    std::thread([loading, path, options]() mutable {
      Load(path, options, loading.get());
      loading.reset();  // and with it an engine that nobody waits for
      Loaders::Instance().End();
    }).detach();
  } catch (const std::system_error&) {  // no more threads: then without one
    Loaders::Instance().End();
    return GetEngine(path, options);
  }
  InterruptPoll poll(db);
  absl::MutexLock lock(&loading->mutex);
  while (!loading->mutex.AwaitWithTimeout(absl::Condition(&loading->done), kInterruptInterval)) {
    if (poll.Interrupted()) return absl::CancelledError("interrupted");
  }
  return std::move(loading->engine);
}

}  // namespace lm
