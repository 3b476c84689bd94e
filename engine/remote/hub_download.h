// Models of the hub (huggingface.co, or what $HF_ENDPOINT says), downloaded once and kept.
//
// A file comes into name.part, is held to the size and the SHA-256 that the hub tells, and gets its
// name then. One that is cut, by the network, an interrupt or a full disk, goes on where it was, in
// this process or in another. While one process downloads a file the others wait for it
// (name.lock).
#ifndef LM_ENGINE_REMOTE_HUB_DOWNLOAD_H_
#define LM_ENGINE_REMOTE_HUB_DOWNLOAD_H_

#include <atomic>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/remote/hub_reference.h"

namespace lm {

// The model's files, in order. The hub's hosts and those that it leads to are held to
// CheckMaySpeakTo; $HF_TOKEN is sent to the hub itself and nobody else. Errors: ChooseFiles';
// PermissionDenied and NotFound in the hub's words; DataLoss where what came is not what the hub
// said; Unavailable where the network or the disk fail for good; Cancelled, soon, once `cancel` is
// set. What is there of a file then stays.
absl::StatusOr<std::vector<std::string>> DownloadModel(const HubReference& reference,
                                                       const std::atomic<bool>& cancel);

}  // namespace lm

#endif  // LM_ENGINE_REMOTE_HUB_DOWNLOAD_H_
