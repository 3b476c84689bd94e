// Read-only access to a file whose contents we do not control: it may be cut or replaced while it
// is in use, so it is read with pread and never mapped (a mapped file that shrinks is a SIGBUS).
//
//   ASSIGN_OR_RETURN(std::unique_ptr<RandomAccessFile> file, OpenFile("model.gguf"));
//   RETURN_IF_ERROR(file->Read(0, absl::MakeSpan(header)));
#ifndef LM_ENGINE_BASE_FILE_H_
#define LM_ENGINE_BASE_FILE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace lm {

// Which file a path leads to, whatever it is called; equal for two paths to the same contents.
struct FileIdentity {
  uint64_t device = 0;
  uint64_t inode = 0;
  uint64_t bytes = 0;
  int64_t modified_ns = 0;

  friend bool operator==(const FileIdentity&, const FileIdentity&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const FileIdentity& id) {
    return H::combine(std::move(h), id.device, id.inode, id.bytes, id.modified_ns);
  }
};

// Thread-safe: reads carry their own offset. Tests inject faults with a subclass.
class RandomAccessFile {
 public:
  virtual ~RandomAccessFile() = default;

  // The size in bytes when the file was opened.
  virtual uint64_t Size() const = 0;

  // Fills `out` with the bytes [offset, offset + out.size()). Interrupted and short reads are
  // continued. An error names the path, the offset and the reason; a file that ends too early is
  // OutOfRange.
  virtual absl::Status Read(uint64_t offset, absl::Span<char> out) const = 0;

  // These bytes, or as many as there are, will be read: they may be fetched meanwhile. Does not
  // wait for them.
  virtual void WillRead(uint64_t /*offset*/, uint64_t /*bytes*/) const {}

  // Whether it may be read again and again, and CheckUnchanged tells what became of it: by its size
  // and time, which a write through a shared mapping may leave as they are.
  virtual bool lasts() const { return false; }
  // FailedPrecondition, naming the path, where it has been written or cut since it was opened.
  // REQUIRES: lasts().
  virtual absl::Status CheckUnchanged() const { return absl::OkStatus(); }
  // Which it was when it was opened. REQUIRES: lasts().
  virtual FileIdentity identity() const { return {}; }
  // When it, or what is known of it, had been changed last by then: unlike the time in its identity
  // nobody can set it. REQUIRES: lasts().
  virtual int64_t changed_ns() const { return 0; }

  virtual const std::string& path() const = 0;
};

// The files of a model, in order; they stay open for whoever has them.
using ModelFiles = std::vector<std::shared_ptr<const RandomAccessFile>>;

// NotFound, PermissionDenied or FailedPrecondition (a directory, a device, a database) with the
// path in it. A file that is an SQLite database, or on which somebody holds a lock as SQLite does,
// is refused and stays open for ever: closing it would take this process's locks on it away from
// whoever has them (fcntl(2), "advisory record locking").
absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenFile(const std::string& path);

// RandomAccessFile::Read of an open file; `path` is for errors.
absl::Status ReadFully(int fd, const std::string& path, uint64_t offset, absl::Span<char> out);

absl::StatusOr<FileIdentity> IdentifyFile(const std::string& path);

}  // namespace lm

#endif  // LM_ENGINE_BASE_FILE_H_
