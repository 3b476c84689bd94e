// RunAside: a long piece of work on a thread of its own, so that the statement that waits for it
// can be interrupted wherever the work is.
//
//   ASSIGN_OR_RETURN(const ModelReport report,
//                    RunAside(db, [path](std::atomic<bool>& cancel) {
//                      return InspectModel(path, cancel);
//                    }));
#ifndef LM_EXTENSION_HOST_ASIDE_H_
#define LM_EXTENSION_HOST_ASIDE_H_

#include <atomic>
#include <memory>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "engine/base/checkpoint.h"
#include "engine/base/cond_var.h"
#include "engine/base/own_thread.h"
#include "extension/host/boundary.h"
#include "extension/host/interrupt.h"

namespace lm {

// The StatusOr that body(cancel) returns; Cancelled, within a few milliseconds, where the statement
// on `db` is interrupted meanwhile. The work then goes on until it looks at `cancel`, without being
// waited for: `body` owns all that it uses. Where there are no more threads it runs on this one.
// REQUIRES: called on the thread that runs the statement, while it runs.
template <typename Body>
std::invoke_result_t<Body&, std::atomic<bool>&> RunAside(sqlite3* db, Body body) {
  using Result = std::invoke_result_t<Body&, std::atomic<bool>&>;
  struct Work {
    explicit Work(Body body) : body(std::move(body)) {}
    void Run() noexcept {
      Result made = absl::UnknownError("");
      const absl::Status status = Guarded([&] {
        made = body(cancel);
        return made.status();
      });
      if (!status.ok()) made = status;
      {
        absl::MutexLock lock(&mutex);
        result = std::move(made);
        done = true;
      }
      changed.SignalAll();
    }
    Body body;
    std::atomic<bool> cancel{false};
    absl::Mutex mutex;
    CondVar changed;
    bool done ABSL_GUARDED_BY(mutex) = false;
    Result result ABSL_GUARDED_BY(mutex) = absl::UnknownError("");
  };
  auto work = std::make_shared<Work>(std::move(body));
  try {
    StartThread([work]() mutable {
      work->Run();
      work.reset();  // and with it a result that is not waited for
    }).detach();
  } catch (const std::system_error&) {
    return work->body(work->cancel);
  }
  InterruptPoll poll(db);
  absl::MutexLock lock(&work->mutex);
  while (!work->changed.AwaitFor(work->mutex, absl::Condition(&work->done), kInterruptInterval)) {
    // On a job's own connection the statement to interrupt is that of the caller who waits
    // (checkpoint.h).
    if (!poll.Interrupted() && !Interrupted()) continue;
    work->cancel = true;
    return absl::CancelledError("interrupted");
  }
  return std::move(work->result);
}

}  // namespace lm

#endif  // LM_EXTENSION_HOST_ASIDE_H_
