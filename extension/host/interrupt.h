// Asking SQLite whether the user has interrupted the statement that runs: sqlite3_interrupt().
#ifndef LM_EXTENSION_HOST_INTERRUPT_H_
#define LM_EXTENSION_HOST_INTERRUPT_H_

#include "absl/time/time.h"
#include "engine/base/checkpoint.h"
#include "extension/host/statement.h"

namespace lm {

// How often one who waits asks.
inline constexpr absl::Duration kInterruptInterval = absl::Milliseconds(5);

// Asks whether the statement that runs on `db` has been interrupted. SQLite 3.41 has a function for
// it; on older ones a nested statement is stepped, which ends with SQLITE_INTERRUPT if so (about
// 20 us). It is prepared at the first question and gone with this object: a statement kept on the
// connection would make sqlite3_close() fail.
// REQUIRES: used on the thread that runs the statement, while it runs.
class InterruptPoll {
 public:
  explicit InterruptPoll(sqlite3* db) : db_(db) {}
  InterruptPoll(const InterruptPoll&) = delete;
  InterruptPoll& operator=(const InterruptPoll&) = delete;

  // False where it cannot be asked.
  bool Interrupted() noexcept;

 private:
  sqlite3* const db_;
  Statement probe_;
};

// While it lives, long computations on its thread stop where the statement on `db` is interrupted.
// Around everything that SQLite calls.
class InterruptScope {
 public:
  explicit InterruptScope(sqlite3* db)
      : poll_(db), scope_([this] { return poll_.Interrupted(); }) {}

 private:
  InterruptPoll poll_;
  CheckpointScope scope_;
};

}  // namespace lm

#endif  // LM_EXTENSION_HOST_INTERRUPT_H_
