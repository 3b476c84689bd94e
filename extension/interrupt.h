// Waiting for the engine without turning a deaf ear to sqlite3_interrupt().
//
//   RETURN_IF_ERROR(Await(db, *request));
//   const Generation& result = request->result();
#ifndef LM_EXTENSION_INTERRUPT_H_
#define LM_EXTENSION_INTERRUPT_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "engine/backend/machine_ceilings.h"
#include "engine/base/checkpoint.h"
#include "engine/runtime/engine.h"
#include "engine/runtime/request.h"
#include "extension/sqlite_api.h"

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
  ~InterruptPoll() { sqlite3_finalize(statement_); }
  InterruptPoll(const InterruptPoll&) = delete;
  InterruptPoll& operator=(const InterruptPoll&) = delete;

  bool Interrupted();

 private:
  sqlite3* const db_;
  sqlite3_stmt* statement_ = nullptr;
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

// Waits until `request` has its result, or until the statement on `db` is interrupted: then the
// request is cancelled and this returns Cancelled, within a few milliseconds.
absl::Status Await(sqlite3* db, Request& request);

// The same until a token of a streamed answer can be taken, or the answer is complete.
absl::Status AwaitToken(sqlite3* db, Request& request);

// What the prefix cache of `engine` holds for `salt`, when it has answered. Cancelled on an
// interrupt.
absl::StatusOr<std::shared_ptr<CacheInspection>> AwaitInspection(sqlite3* db, Engine& engine,
                                                                 std::string salt);

// CeilingsOfThisProcess for as many threads as it may use. Cancelled on an interrupt.
absl::StatusOr<MachineCeilings> AwaitCeilings(sqlite3* db);

// Why `generation` has no answer; OK if it has one. Never Cancelled: an engine that stops is not an
// interrupt by the user.
absl::Status GenerationStatus(const Generation& generation);

}  // namespace lm

#endif  // LM_EXTENSION_INTERRUPT_H_
