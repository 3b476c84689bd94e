// Threads of ours in a host's process.
//
//   std::thread thread = StartThread([this] { Run(); });
#ifndef LM_ENGINE_BASE_OWN_THREAD_H_
#define LM_ENGINE_BASE_OWN_THREAD_H_

#include <signal.h>

#include <cfenv>
#include <thread>
#include <utility>

namespace lm {

// While it lives, threads that this one makes take no signals but those of their own faults: the
// others are for threads of the host, which may have blocked them there to wait for them.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT}) {
      sigdelset(&all, fault);
    }
    pthread_sigmask(SIG_BLOCK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

// A thread that takes none of the host's signals, and rounds as every thread of ours, however that
// does which makes it. std::thread's errors.
template <typename Body>
std::thread StartThread(Body body) {
  const SignalsBlocked blocked;
  return std::thread([body = std::move(body)]() mutable {
    std::fesetenv(FE_DFL_ENV);
    body();
  });
}

}  // namespace lm

#endif  // LM_ENGINE_BASE_OWN_THREAD_H_
