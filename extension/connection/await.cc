#include "extension/connection/await.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/checkpoint.h"
#include "engine/base/cpu_features.h"
#include "engine/base/monotonic_time.h"
#include "engine/base/status_macros.h"
#include "extension/connection/statement_call.h"
#include "extension/host/interrupt.h"

namespace lm {
namespace {

absl::Status AwaitPart(sqlite3* db, Request& request, bool (Request::*wait)(absl::Duration),
                       absl::FunctionRef<absl::Status()> meanwhile) {
  const std::shared_ptr<RunningWork> work = StatementCall::Work();
  const WaitingFor model(work.get(), "model");
  if (Interrupted() || ProgressPoll::Ends(db)) {  // many short waits are a long one
    request.Cancel();
    return absl::CancelledError("interrupted");
  }
  InterruptPoll poll(db);
  for (;;) {
    absl::Status status = CheckStatementTime(request.spec().options.max_seconds);
    if ((request.*wait)(status.ok() ? kInterruptInterval : absl::ZeroDuration())) break;
    if (status.ok() && poll.Interrupted()) status = absl::CancelledError("interrupted");
    if (status.ok()) status = meanwhile();
    if (status.ok()) continue;
    request.Cancel();
    return status;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckStatementTime(double max_seconds) {
  if (max_seconds == 0) return absl::OkStatus();
  const std::shared_ptr<RunningWork> work = StatementCall::Work();
  if (work == nullptr || MonotonicTime::Now() < work->start() + absl::Seconds(max_seconds)) {
    return absl::OkStatus();
  }
  return absl::DeadlineExceededError(
      absl::StrCat("the statement took longer than max_seconds = ", max_seconds));
}

absl::Status Await(sqlite3* db, Request& request, absl::FunctionRef<absl::Status()> meanwhile) {
  return AwaitPart(db, request, &Request::WaitFor, meanwhile);
}

absl::Status AwaitToken(sqlite3* db, Request& request) {
  // A stream that always has its next token ready comes to its end here.
  if (absl::Status late = CheckStatementTime(request.spec().options.max_seconds); !late.ok()) {
    request.Cancel();
    return late;
  }
  return AwaitPart(db, request, &Request::WaitForToken, NothingMeanwhile);
}

absl::StatusOr<std::shared_ptr<CacheInspection>> AwaitInspection(sqlite3* db, Engine& engine,
                                                                 std::string salt) {
  InterruptPoll poll(db);
  std::shared_ptr<CacheInspection> inspection = engine.InspectCache(std::move(salt));
  while (!inspection->WaitFor(kInterruptInterval)) {
    if (poll.Interrupted()) return absl::CancelledError("interrupted");
  }
  RETURN_IF_ERROR(inspection->status());
  return inspection;
}

absl::StatusOr<MachineCeilings> AwaitCeilings(sqlite3* db) {
  InterruptPoll poll(db);
  std::optional<MachineCeilings> ceilings =
      CeilingsOfThisProcess(DefaultThreads(), [&poll] { return poll.Signalled(); });
  if (!ceilings.has_value()) return absl::CancelledError("interrupted");
  return *ceilings;
}

absl::Status GenerationStatus(const Generation& generation) {
  if (!absl::IsCancelled(generation.status)) return generation.status;
  return absl::UnavailableError(generation.status.message());
}

}  // namespace lm
