// The Batch API of OpenAI: files go up, batches are made of them, and their answers come down,
// within a day and for half the price.
#ifndef LM_ENGINE_REMOTE_BATCH_API_H_
#define LM_ENGINE_REMOTE_BATCH_API_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/scratch_file.h"
#include "engine/remote/remote_options.h"

namespace lm {

struct RemoteBatch {
  std::string id = {};
  std::string status = {};       // in the server's words: validating, in_progress, completed, ...
  std::string output_file = {};  // empty: none, or not yet
  std::string error_file = {};
  std::string errors = {};  // why it was not begun; empty: nothing
  int64_t total = 0;        // requests
  int64_t completed = 0;
  int64_t failed = 0;

  // Whether no more of it will be answered.
  bool ended() const {
    return status == "completed" || status == "failed" || status == "expired" ||
           status == "cancelled";
  }
};

// Thread-safe. Each call waits, and ends within a few milliseconds with Cancelled once `cancel` is
// set. What fails on the way is tried again, as often as the options say; then it is Unavailable.
class BatchApi {
 public:
  virtual ~BatchApi() = default;

  // The number of the file that the server keeps under `name`.
  virtual absl::StatusOr<std::string> Upload(const std::string& name,
                                             std::shared_ptr<const ScratchFile> file,
                                             const std::atomic<bool>& cancel) = 0;
  // The same of one that has been uploaded before.
  virtual absl::StatusOr<std::optional<std::string>> FindFile(const std::string& name,
                                                              const std::atomic<bool>& cancel) = 0;
  // Begins a batch of the chat API over an uploaded file; `key` is noted with it. Tried once:
  // after an Unavailable nobody knows whether it was begun but FindBatch.
  virtual absl::StatusOr<RemoteBatch> Create(const std::string& file, const std::string& key,
                                             const std::atomic<bool>& cancel) = 0;
  // The batch over that file.
  virtual absl::StatusOr<std::optional<RemoteBatch>> FindBatch(const std::string& file,
                                                               const std::atomic<bool>& cancel) = 0;
  virtual absl::StatusOr<RemoteBatch> Get(const std::string& id,
                                          const std::atomic<bool>& cancel) = 0;
  // All that the file has, into a new one without a name.
  virtual absl::StatusOr<std::shared_ptr<const ScratchFile>> Download(
      const std::string& file, const std::atomic<bool>& cancel) = 0;
};

// Of the server at `url`. FailedPrecondition where this build, or this machine, has no network
// library.
absl::StatusOr<std::shared_ptr<BatchApi>> OpenBatchApi(const std::string& url,
                                                       const RemoteOptions& options);

}  // namespace lm

#endif  // LM_ENGINE_REMOTE_BATCH_API_H_
