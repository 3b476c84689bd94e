// ContentDigest: a name for the contents of a model's files, made when somebody first asks for it:
// it takes a pass over all of them, which a first answer need not wait for.
//
//   const ContentDigest digest(gguf->files(), threads);
//   ASSIGN_OR_RETURN(const std::string name, digest.Get());
#ifndef LM_ENGINE_GGUF_CONTENT_DIGEST_H_
#define LM_ENGINE_GGUF_CONTENT_DIGEST_H_

#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "engine/base/file.h"

namespace lm {

// Thread-safe.
class ContentDigest {
 public:
  // Of files, all of which last (RandomAccessFile::lasts), read on so many threads.
  ContentDigest(ModelFiles files, int num_threads)
      : files_(std::move(files)), num_threads_(num_threads) {}
  // One that is known.
  explicit ContentDigest(std::string digest) : digest_(std::move(digest)) {}

  // 32 hexadecimal digits (see engine/base/digest.h). Reads the files where nobody has yet; who
  // asks meanwhile waits. Cancelled where the thread's scope (checkpoint.h) is interrupted;
  // DataLoss, naming it, where a file cannot be read any more or has changed since it was opened.
  absl::StatusOr<std::string> Get() const;

  // nullopt: nobody has asked.
  std::optional<std::string> known() const;

 private:
  const ModelFiles files_;
  const int num_threads_ = 1;
  mutable std::timed_mutex making_;  // held while it is made
  mutable absl::Mutex mutex_;
  mutable std::optional<std::string> digest_ ABSL_GUARDED_BY(mutex_);
};

// The digest of files as they are now. Errors: those of reading; Cancelled as Get.
absl::StatusOr<std::string> DigestFiles(const ModelFiles& files, int num_threads);

}  // namespace lm

#endif  // LM_ENGINE_GGUF_CONTENT_DIGEST_H_
