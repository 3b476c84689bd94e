// What a build with -DLM_NETWORK=OFF has of this folder, besides what needs no network.
#include "engine/remote/batch_api.h"
#include "engine/remote/hub_download.h"
#include "engine/remote/remote_generator.h"

namespace lm {
namespace {

absl::Status NoNetwork() {
  return absl::FailedPreconditionError(
      "this build has no models on the network (it was made with -DLM_NETWORK=OFF)");
}

}  // namespace

bool HasNetwork() { return false; }

absl::StatusOr<std::shared_ptr<Generator>> GetRemoteGenerator(const std::string&,
                                                              const std::string&, Patience,
                                                              std::atomic<bool>&) {
  return NoNetwork();
}

std::vector<std::shared_ptr<RemoteGenerator>> RunningRemoteGenerators() { return {}; }

absl::StatusOr<std::vector<std::string>> DownloadModel(const HubReference&,
                                                       const std::atomic<bool>&) {
  return NoNetwork();
}

absl::StatusOr<std::shared_ptr<BatchApi>> OpenBatchApi(const std::string&, const RemoteOptions&) {
  return NoNetwork();
}

}  // namespace lm
