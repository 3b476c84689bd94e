// Asking SQLite whether the statement that runs is to end: by sqlite3_interrupt(), or by the
// host's progress handler.
#ifndef LM_EXTENSION_HOST_INTERRUPT_H_
#define LM_EXTENSION_HOST_INTERRUPT_H_

#include <atomic>
#include <utility>

#include "absl/time/time.h"
#include "engine/base/checkpoint.h"
#include "engine/base/status_macros.h"
#include "extension/host/boundary.h"
#include "extension/host/progress_poll.h"
#include "extension/host/statement.h"

namespace lm {

// How often waiting code asks.
inline constexpr absl::Duration kInterruptInterval = absl::Milliseconds(5);

// Asks whether the statement that runs on `db` is to end. SQLite 3.41 has a function for
// sqlite3_interrupt(); on older ones its parser is given a text without a statement, and ends with
// SQLITE_INTERRUPT if so.
// REQUIRES: used on the thread that runs the statement, while it runs.
class InterruptPoll {
 public:
  explicit InterruptPoll(sqlite3* db) : db_(db) {}
  InterruptPoll(const InterruptPoll&) = delete;
  InterruptPoll& operator=(const InterruptPoll&) = delete;

  // For who waits: has it been interrupted, or does the host's progress handler end it
  // (progress_poll.h)? No lock may be held that others of the host wait for.
  bool Interrupted() noexcept;
  // Has it been interrupted? False where that cannot be asked.
  bool Signalled() noexcept;

 private:
  sqlite3* const db_;
  bool closed_ = false;  // the host has closed the connection, as far as it is known here
};

// Another's wish that what this thread does be ended: while it lives and its flag is set, every
// InterruptPoll of its thread finds an interrupt.
class CancelFlagScope {
 public:
  explicit CancelFlagScope(const std::atomic<bool>* flag);
  ~CancelFlagScope();
  CancelFlagScope(const CancelFlagScope&) = delete;
  CancelFlagScope& operator=(const CancelFlagScope&) = delete;

 private:
  friend class InterruptPoll;

  const std::atomic<bool>* const flag_;
  const CancelFlagScope* const outer_;
};

// Guarded(body), for everything that may take long: computations on this thread stop where the
// statement on its connection is interrupted or was ended by a limit. What then went wrong may come
// of what was left unfinished: the error is Cancelled.
template <typename Body>
absl::Status GuardedInterruptibly(ProgressPoll& progress, Body&& body) noexcept {
  return Guarded([&]() -> absl::Status {
    const ProgressPoll::Call call(progress);
    InterruptPoll poll(progress.db());
    const CheckpointScope scope([&] { return poll.Signalled() || progress.ended(); });
    absl::Status status = std::forward<Body>(body)();
    if (!status.ok()) RETURN_IF_ERROR(Checkpoint());
    return status;
  });
}

}  // namespace lm

#endif  // LM_EXTENSION_HOST_INTERRUPT_H_
