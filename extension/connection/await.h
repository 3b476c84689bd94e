// Waiting for the engine without turning a deaf ear to sqlite3_interrupt().
//
//   RETURN_IF_ERROR(Await(db, *request));
//   const Generation& result = request->result();
#ifndef LM_EXTENSION_CONNECTION_AWAIT_H_
#define LM_EXTENSION_CONNECTION_AWAIT_H_

#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/backend/machine_ceilings.h"
#include "engine/runtime/engine.h"
#include "engine/runtime/request.h"
#include "extension/host/sqlite_api.h"

namespace lm {

inline absl::Status NothingMeanwhile() { return absl::OkStatus(); }

// Waits until `request` has its result, or until the statement on `db` is interrupted or has gone
// on for the request's max_seconds: then the request is cancelled and this returns Cancelled or
// DeadlineExceeded, within a few milliseconds. `meanwhile` is called every few milliseconds, on
// this thread; an error of it ends the waiting, too.
absl::Status Await(sqlite3* db, Request& request,
                   absl::FunctionRef<absl::Status()> meanwhile = NothingMeanwhile);

// The same until a token of a streamed answer can be taken, or the answer is complete.
absl::Status AwaitToken(sqlite3* db, Request& request);

// DeadlineExceeded where the statement that this thread is in has gone on for more than
// `max_seconds` (0: no limit).
absl::Status CheckStatementTime(double max_seconds);

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

#endif  // LM_EXTENSION_CONNECTION_AWAIT_H_
