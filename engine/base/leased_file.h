// LeasedFile: a file's bytes as memory that all processes share which map it.
//
//   ASSIGN_OR_RETURN(std::shared_ptr<LeasedFile> file, LeasedFile::Open("weights.pack"));
//   file->bytes() ...
//   if (!file->IsHeld()) RETURN_IF_ERROR(file->TakeCopy(check));
//
// A mapped file that somebody cuts is a SIGBUS for who reads what is gone. So it is mapped under a
// lease (fcntl(2), F_SETLEASE): whoever opens it for writing, or cuts it, waits until we let go, or
// for /proc/sys/fs/lease-break-time (45 seconds). Who reads asks IsHeld() first, more often than
// that, and takes a copy where it is not.
#ifndef LM_ENGINE_BASE_LEASED_FILE_H_
#define LM_ENGINE_BASE_LEASED_FILE_H_

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace lm {

class LeasedFile {
 public:
  // FailedPrecondition where no lease is to be had: the file is another user's, is being written,
  // or lies where there are none (NFS). Its other errors name the file, too.
  static absl::StatusOr<std::shared_ptr<LeasedFile>> Open(const std::string& path);
  ~LeasedFile();
  LeasedFile(const LeasedFile&) = delete;
  LeasedFile& operator=(const LeasedFile&) = delete;

  // They stay where they are. Thread-safe.
  absl::Span<const char> bytes() const { return {static_cast<const char*>(data_), size_}; }

  // Whether the bytes may be read for the seconds to come: nobody waits to change the file, or they
  // are a copy. A system call.
  bool IsHeld() const { return copied_ || HasLease(); }

  // Puts a copy of the file, which is read, where the bytes were, and lets the others have it.
  // Before that `check` sees the copy: its error, and those of reading, leave all as it was, and
  // the bytes are not to be read any more. One thread at a time.
  absl::Status TakeCopy(absl::FunctionRef<absl::Status(absl::Span<const char>)> check);

 private:
  explicit LeasedFile(std::string path) : path_(std::move(path)) {}
  absl::Status Error(const char* doing) const;
  absl::Status Map();
  bool HasLease() const;

  const std::string path_;
  int fd_ = -1;
  void* data_ = nullptr;
  size_t size_ = 0;
  std::atomic<bool> copied_{false};
};

}  // namespace lm

#endif  // LM_ENGINE_BASE_LEASED_FILE_H_
