#include "extension/connection/await.h"

#include <optional>
#include <utility>

#include "engine/base/cpu_features.h"
#include "engine/base/status_macros.h"
#include "extension/connection/statement_call.h"
#include "extension/host/interrupt.h"

namespace lm {
namespace {

absl::Status AwaitPart(sqlite3* db, Request& request, bool (Request::*wait)(absl::Duration)) {
  const std::shared_ptr<RunningWork> work = StatementCall::Work();
  const WaitingFor model(work.get(), "model");
  InterruptPoll poll(db);
  while (!(request.*wait)(kInterruptInterval)) {
    if (!poll.Interrupted()) continue;
    request.Cancel();
    return absl::CancelledError("interrupted");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Await(sqlite3* db, Request& request) {
  return AwaitPart(db, request, &Request::WaitFor);
}

absl::Status AwaitToken(sqlite3* db, Request& request) {
  return AwaitPart(db, request, &Request::WaitForToken);
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
      CeilingsOfThisProcess(AvailableCpus(), [&poll] { return poll.Interrupted(); });
  if (!ceilings.has_value()) return absl::CancelledError("interrupted");
  return *ceilings;
}

absl::Status GenerationStatus(const Generation& generation) {
  if (!absl::IsCancelled(generation.status)) return generation.status;
  return absl::UnavailableError(generation.status.message());
}

}  // namespace lm
