// StatementCall: a call by SQLite of something that may take long, as one statement's. What waits
// below it finds the statement's record for lm_running here, and a statement that is cancelled
// there ends with an error that says so.
//
//   absl::Status status = RunForStatement(connection, "generate", keeper, [&] { return ...; });
//
// The record is made at the first call that has to wait, or has rows to count; short functions have
// none.
#ifndef LM_EXTENSION_CONNECTION_STATEMENT_CALL_H_
#define LM_EXTENSION_CONNECTION_STATEMENT_CALL_H_

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "extension/connection/running_work.h"
#include "extension/host/boundary.h"
#include "extension/host/interrupt.h"
#include "extension/host/sqlite_api.h"

namespace lm {

class Connection;

// The records of a connection's statements. Not thread-safe.
class RunningStatements {
 public:
  // That of the statement that calls `function`, as far as can be told: SQLite does not say which
  // one calls. Functions of one statement share it.
  std::shared_ptr<RunningWork> Of(Connection& connection, absl::string_view function);

 private:
  // SQLite ends what it keeps for a statement's functions with each firing of a trigger, too, and
  // the record with that; its span goes on.
  struct Known {
    // Whether it is one of these, and fires a trigger again.
    bool FiresOn(absl::Span<sqlite3_stmt* const> busy) const;

    sqlite3_stmt* statement;
    int step;
    int run = 0;
    std::string sql = {};
    std::weak_ptr<RunningWork> work = {};
    WorkSpan span = {};
  };
  std::vector<Known> known_;
};

// Where a record is kept as long as its statement runs. Asked without `make`, null where there is
// no place yet; with it, null where there is no memory for one.
using WorkKeeper = absl::FunctionRef<std::shared_ptr<RunningWork>*(bool make)>;

class StatementCall {
 public:
  StatementCall(Connection& connection, absl::string_view function, WorkKeeper keeper);
  ~StatementCall();
  StatementCall(const StatementCall&) = delete;
  StatementCall& operator=(const StatementCall&) = delete;

  // Of the call that this thread is in, the innermost one; null outside of any.
  static std::shared_ptr<RunningWork> Work();

  // Whether the innermost call is within the statement of another, as one in the SELECT that
  // lm_query() or lm_explain() is given.
  static bool IsWithinAnother();

  // Says what the statement has not done, and why: for lm_running.hint, and lm_stats.hint until
  // the next one generates.
  static void Note(const std::string& note);
  // Says that rows of the statement decode together: what is said of others that had to ask for
  // one row at a time is of the past.
  static void Batched();

  // What is to become of a call that ended with `status`.
  absl::Status Concluded(absl::Status status) const;
  ProgressPoll& progress_poll() const;
  // An error where too many others of this thread are under way around it: a statement that reads
  // itself, by lm_query() of a view that calls it, would else end at the end of the stack.
  absl::Status CheckDepth() const;
  bool cancelled() const { return work_ != nullptr && work_->cancelled(); }

 private:
  void Attach(std::shared_ptr<RunningWork> work);

  Connection& connection_;
  const absl::string_view function_;
  const WorkKeeper keeper_;
  StatementCall* const outer_;
  const int depth_;  // calls around it, and itself
  std::shared_ptr<RunningWork> work_;
  std::optional<CancelFlagScope> flag_;
};

// GuardedInterruptibly(body) as a call of the statement.
template <typename Body>
absl::Status RunForStatement(Connection& connection, absl::string_view function, WorkKeeper keeper,
                             Body&& body) noexcept {
  return Guarded([&]() -> absl::Status {
    const StatementCall call(connection, function, keeper);
    if (call.cancelled()) return call.Concluded(absl::OkStatus());
    absl::Status shallow = call.CheckDepth();
    if (!shallow.ok()) return shallow;
    return call.Concluded(GuardedInterruptibly(call.progress_poll(), std::forward<Body>(body)));
  });
}

}  // namespace lm

#endif  // LM_EXTENSION_CONNECTION_STATEMENT_CALL_H_
