// PartFile: a file that comes in pieces, of whichever process, until it is what it was said to be.
//
//   ASSIGN_OR_RETURN(std::unique_ptr<PartFile> part, PartFile::Open(path, {size, sha256}, cancel));
//   ... ask for the bytes from part->size() on ...
//   RETURN_IF_ERROR(part->Append(bytes));
//   RETURN_IF_ERROR(part->Commit());
#ifndef LM_ENGINE_REMOTE_PART_FILE_H_
#define LM_ENGINE_REMOTE_PART_FILE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/base/sha256.h"

namespace lm {

struct FileFacts {
  int64_t size = 0;
  std::string sha256;  // 64 digits

  friend bool operator==(const FileFacts&, const FileFacts&) = default;
};

// Not thread-safe. Errors name the path.
class PartFile {
 public:
  // Goes on with path.part where it is one of these facts, else begins it. It is this process's,
  // and this object's, as long as it lives: others wait. Cancelled once `cancel` is set;
  // PermissionDenied where nothing may be written there and the file itself is not there.
  static absl::StatusOr<std::unique_ptr<PartFile>> Open(const std::string& path, FileFacts facts,
                                                        const std::atomic<bool>& cancel);
  ~PartFile();
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;

  // Whether the file itself is there by now: with that digest, which path.lock tells if the file
  // has not been written to since; else the file is read.
  bool is_there() const { return is_there_; }
  int64_t size() const { return size_; }
  // The server's mark of the version that the bytes are of; empty: not known.
  const std::string& etag() const { return etag_; }

  // Begins anew, with bytes of the version `etag`.
  absl::Status Restart(const std::string& etag);
  // DataLoss where there are more than there should be.
  absl::Status Append(absl::string_view bytes);
  // Gives it its name. DataLoss where it is not what it should be; then nothing of it stays.
  absl::Status Commit();

 private:
  PartFile(std::string path, FileFacts facts) : path_(std::move(path)), facts_(std::move(facts)) {}

  absl::Status Lock(const std::atomic<bool>& cancel);
  absl::Status Resume(const std::atomic<bool>& cancel);
  // Of the file that is there.
  absl::StatusOr<std::string> DigestThere(const std::atomic<bool>& cancel);
  void NoteDigest(const std::string& sha256, int64_t change) const;
  absl::Status ReadAll(int fd, const std::string& name, const std::atomic<bool>& cancel,
                       absl::FunctionRef<void(absl::string_view)> take) const;
  absl::Status Failed(absl::string_view doing, const std::string& path) const;
  void Forget();

  const std::string path_;
  const FileFacts facts_;
  int lock_ = -1;
  int fd_ = -1;
  bool is_there_ = false;
  int64_t size_ = 0;
  std::string etag_;
  Sha256 hash_;
};

}  // namespace lm

#endif  // LM_ENGINE_REMOTE_PART_FILE_H_
