#include "engine/base/exit_guard.h"

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <new>
#include <thread>
#include <type_traits>

namespace lm {
namespace {

// The guards that are held. Not an absl::Mutex: that has a destructor.
struct State {
  std::mutex mutex;
  bool exit_begun = false;
  ExitGuard* first = nullptr;
};
static_assert(std::is_trivially_destructible_v<State>);
constinit State state;

}  // namespace

ExitGuard::ExitGuard(Stop stop, void* arg) : stop_(stop), arg_(arg) {
  [[maybe_unused]] static const bool registered = [] {
    std::atexit(&OnExit);
    // A child has none of the threads that hold guards, one of which may have held the mutex.
    pthread_atfork(nullptr, nullptr, [] { new (&state) State; });
    return true;
  }();
  std::lock_guard<std::mutex> lock(state.mutex);
  allowed_ = !state.exit_begun;
  if (!allowed_) return;
  next_ = state.first;
  if (next_ != nullptr) next_->previous_ = this;
  state.first = this;
}

ExitGuard::~ExitGuard() {
  if (!allowed_) return;
  std::lock_guard<std::mutex> lock(state.mutex);
  if (next_ != nullptr) next_->previous_ = previous_;
  (previous_ != nullptr ? previous_->next_ : state.first) = next_;
}

bool ExitGuard::exit_begun() {
  std::lock_guard<std::mutex> lock(state.mutex);
  return state.exit_begun;
}

absl::Status ExitGuard::Error() {
  return absl::FailedPreconditionError("the process is about to exit");
}

void ExitGuard::StayAheadOf(Library library) {
  static std::atomic<uint32_t> known{0};
  const uint32_t bit = uint32_t{1} << static_cast<int>(library);
  if ((known.fetch_or(bit) & bit) == 0) std::atexit(&OnExit);
}

void ExitGuard::OnExit() {
  std::unique_lock<std::mutex> lock(state.mutex);
  state.exit_begun = true;
  for (const ExitGuard* guard = state.first; guard != nullptr; guard = guard->next_) {
    if (guard->stop_ != nullptr) guard->stop_(guard->arg_);
  }
  // Where a signal's handler calls exit(), this thread may be in the midst of something that holds
  // a guard: that will never go on.
  auto held_elsewhere = [] {
    const ExitGuard* guard = state.first;
    while (guard != nullptr && guard->thread_ == std::this_thread::get_id()) guard = guard->next_;
    return guard != nullptr;
  };
  while (held_elsewhere()) {
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    lock.lock();
  }
}

}  // namespace lm
