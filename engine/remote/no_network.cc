// What a build with -DLM_NETWORK=OFF has of this folder, besides remote_options.cc.
#include "engine/remote/remote_generator.h"

namespace lm {

absl::StatusOr<std::shared_ptr<Generator>> GetRemoteGenerator(const std::string&,
                                                              const std::string&,
                                                              std::atomic<bool>&) {
  return absl::FailedPreconditionError(
      "this build has no models on the network (it was made with -DLM_NETWORK=OFF)");
}

std::vector<std::shared_ptr<RemoteGenerator>> RunningRemoteGenerators() { return {}; }

}  // namespace lm
