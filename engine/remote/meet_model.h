// Which model the servers at some addresses have: what is asked before anything else.
#ifndef LM_ENGINE_REMOTE_MEET_MODEL_H_
#define LM_ENGINE_REMOTE_MEET_MODEL_H_

#include <atomic>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/remote/chat_api.h"
#include "engine/remote/network.h"
#include "engine/remote/remote_generator.h"
#include "engine/remote/remote_options.h"

namespace lm {

// Waits. GetRemoteGenerator's errors; an absence where no server is reached, or it fails, after as
// many looks as `patience` says.
absl::StatusOr<RemoteModel> MeetModel(Network* network, const std::vector<std::string>& urls,
                                      const RemoteOptions& options, Patience patience,
                                      const std::atomic<bool>& cancel);

// Whether the status says that servers are away, or fail.
bool IsAbsence(const absl::Status& status);

}  // namespace lm

#endif  // LM_ENGINE_REMOTE_MEET_MODEL_H_
