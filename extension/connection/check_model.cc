#include "extension/connection/check_model.h"

#include <memory>

#include "engine/base/monotonic_time.h"
#include "engine/base/status_macros.h"
#include "engine/remote/remote_generator.h"
#include "extension/connection/await.h"

namespace lm {
namespace {

constexpr absl::Duration kLongest = absl::Minutes(1);  // of all questions

// What comes too late is found out at the first use.
absl::Status AwaitProofs(Connection& connection, RemoteGenerator& generator) {
  const MonotonicTime end = MonotonicTime::Now() + kLongest;
  for (const std::shared_ptr<Request>& question : generator.Prove(connection.Salt())) {
    const absl::Status waited = Await(connection.db(), *question, [end] {
      return MonotonicTime::Now() < end ? absl::OkStatus() : absl::DeadlineExceededError("");
    });
    if (absl::IsCancelled(waited)) return waited;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> CheckModel(Connection& connection, const std::string& name) {
  const NamedModel* model = connection.names().Find(name);
  if (model == nullptr || !IsRemotePath(model->path)) return "";
  ASSIGN_OR_RETURN(const RemoteOptions options, ParseRemoteOptions(model->options));
  if (!options.check) return "";
  const absl::StatusOr<std::shared_ptr<const ModelUse>> use = connection.Use(name);
  if (absl::IsUnavailable(use.status())) return std::string(use.status().message());
  RETURN_IF_ERROR(use.status());
  const absl::Status absence = (*use)->session.generator().absence();
  if (!absence.ok()) return std::string(absence.message());
  if (options.ranks) return "";  // it is asked for no constraint
  for (const std::shared_ptr<RemoteGenerator>& generator : RunningRemoteGenerators()) {
    if (generator.get() != &(*use)->session.generator()) continue;
    RETURN_IF_ERROR(AwaitProofs(connection, *generator));
  }
  return "";
}

}  // namespace lm
