// What exit() waits for.
//
// exit() runs the handlers that libraries have registered, newest first, while other threads go on:
// oneDNN frees its compiled kernels there, and CUDA its driver. Whoever uses a library like that
// holds a guard meanwhile. Our own handler comes before theirs, asks the holders to stop, and waits
// until they are gone.
//
//   ExitGuard guard(&StopMe, this);
//   if (!guard.allowed()) return ExitGuard::Error();
//
// Nothing else of ours needs waiting for: no object with static storage duration is destroyed.
#ifndef LM_ENGINE_BASE_EXIT_GUARD_H_
#define LM_ENGINE_BASE_EXIT_GUARD_H_

#include <thread>

#include "absl/status/status.h"

namespace lm {

// Of one thread, which makes it and lets go of it. In a forked child of the process that holds
// guards, exit() waits for none of them; and never for those of the thread that called it.
class ExitGuard {
 public:
  using Stop = void (*)(void* arg);

  // exit() calls stop(arg), where there is one, on its own thread; it must make the holder let go
  // soon, without waiting for it. Without one the holder must be quick.
  explicit ExitGuard(Stop stop = nullptr, void* arg = nullptr);
  ~ExitGuard();
  ExitGuard(const ExitGuard&) = delete;
  ExitGuard& operator=(const ExitGuard&) = delete;

  // False: exit() has begun, and waits for this guard no more.
  bool allowed() const { return allowed_; }

  static bool exit_begun();
  static absl::Status Error();

  // Puts our handler, once, in front of those that a library has registered by now. For a holder
  // that has just used it, perhaps for the first time: that is when it makes what its handlers
  // destroy.
  enum class Library { kOneDnn, kCuda, kCurl };
  static void StayAheadOf(Library library);

 private:
  static void OnExit();

  const Stop stop_;
  void* const arg_;
  const std::thread::id thread_ = std::this_thread::get_id();
  bool allowed_;
  ExitGuard* next_ = nullptr;  // in the list of all that are held
  ExitGuard* previous_ = nullptr;
};

}  // namespace lm

#endif  // LM_ENGINE_BASE_EXIT_GUARD_H_
