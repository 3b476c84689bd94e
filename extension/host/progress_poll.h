// ProgressPoll: hears a host's limit by sqlite3_progress_handler() while a statement waits. SQLite
// asks the handler each time so many of its own instructions have run, and while the model works
// none do. So a statement of ours, which reads no table and needs no transaction, runs some.
//
//   const ProgressPoll::Call call(connection.progress_poll());    // around each call by SQLite
//   ...
//   if (ProgressPoll::Ends(db)) return absl::CancelledError("interrupted");  // where it waits
#ifndef LM_EXTENSION_HOST_PROGRESS_POLL_H_
#define LM_EXTENSION_HOST_PROGRESS_POLL_H_

#include <chrono>

#include "absl/status/status.h"
#include "extension/host/sqlite_api.h"
#include "extension/host/statement.h"

namespace lm {

// Of a connection. Not thread-safe.
class ProgressPoll {
 public:
  explicit ProgressPoll(sqlite3* db) : db_(db) {}
  ProgressPoll(const ProgressPoll&) = delete;
  ProgressPoll& operator=(const ProgressPoll&) = delete;

  sqlite3* db() const { return db_; }

  // A call by SQLite on this thread. The statement of ours ends with the outermost one.
  class Call {
   public:
    explicit Call(ProgressPoll& poll);
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    friend class ProgressPoll;

    ProgressPoll& poll_;
    const Call* const outer_;
  };

  // Whether the handler ends the statement on `db` that this thread is in a call of: once it has,
  // until the outermost call is over. It is asked once in 50 ms, and may do what it likes: no lock
  // may be held that others of the host wait for.
  static bool Ends(sqlite3* db) noexcept;
  // Whether it was heard to do so in the calls that this thread is in.
  bool ended() const { return ended_; }

 private:
  using Clock = std::chrono::steady_clock;

  bool IsTime();
  bool Ask() noexcept;
  absl::Status Step();

  sqlite3* const db_;
  int calls_ = 0;              // that this thread is in
  Clock::time_point looked_;   // at the clock
  Clock::duration waited_{0};  // in calls since the handler was asked, up to looked_
  Statement statement_;
  bool asking_ = false;  // the handler may run statements that wait
  bool ended_ = false;   // the handler has ended the statement
  bool cannot_ = false;  // by an authorizer or a limit of the host's
};

}  // namespace lm

#endif  // LM_EXTENSION_HOST_PROGRESS_POLL_H_
