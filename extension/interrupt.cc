#include "extension/interrupt.h"

#include "engine/base/status_macros.h"

#include <optional>
#include <utility>

#include "engine/base/cpu_features.h"
#include "extension/host.h"

namespace lm {
namespace {

// The comment is for those who trace their connection.
constexpr char kProbe[] = "SELECT 1 /* sqlite-lm: interrupted? */";

absl::Status AwaitPart(sqlite3* db, Request& request, bool (Request::*wait)(absl::Duration)) {
  InterruptPoll poll(db);
  while (!(request.*wait)(kInterruptInterval)) {
    if (!poll.Interrupted()) continue;
    request.Cancel();
    return absl::CancelledError("interrupted");
  }
  return absl::OkStatus();
}

}  // namespace

bool InterruptPoll::Interrupted() {
  static const IsInterruptedFunction is_interrupted = FindIsInterrupted();
  if (is_interrupted != nullptr) return is_interrupted(db_) != 0;
  if (statement_ == nullptr) {
    int code = sqlite3_prepare_v2(db_, kProbe, -1, &statement_, nullptr);
    // The parser notices an interrupt too. Any other failure is an authorizer that forbids it.
    if (code != SQLITE_OK) return code == SQLITE_INTERRUPT;
  }
  sqlite3_step(statement_);
  return sqlite3_reset(statement_) == SQLITE_INTERRUPT;
}

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
