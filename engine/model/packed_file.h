// Matrices as a backend lays them out, in a file: who opens it next maps them and packs nothing.
//
//   ASSIGN_OR_RETURN(auto packed, PackedFile::Open(path, source, threads));
//   std::optional<Buffer> matrix = packed->Find(name);
//
//   ASSIGN_OR_RETURN(auto packing, PackedFileWriter::Create(path));
//   packing->Add(name, matrix->packed());
//   RETURN_IF_ERROR(packing->Finish(source));
//
// The file: a head, the matrices on cache lines, a directory in JSON with the place, the size and
// the digest of each, which the head has the digest of. It is this machine's: its byte order.
#ifndef LM_ENGINE_MODEL_PACKED_FILE_H_
#define LM_ENGINE_MODEL_PACKED_FILE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/base/digest.h"
#include "engine/base/hash_map.h"
#include "engine/base/leased_file.h"
#include "engine/base/locked_part.h"
#include "engine/tensor/buffer.h"

namespace lm {

// What the matrices were made of, and how. Any difference makes a file of no use.
struct PackedSource {
  std::string path;      // of the model
  std::string contents;  // that tells its contents from others
  std::string layout;    // of the matrices, and which they are
  std::string digest;    // ModelInfo::digest; no part of the comparison

  bool Matches(const PackedSource& other) const {
    return path == other.path && contents == other.contents && layout == other.layout;
  }
};

class PackedFile {
 public:
  // Maps the file where the system promises to keep it (LeasedFile), and reads it elsewhere.
  // NotFound where there is none, FailedPrecondition where it is of another source or neither this
  // user's nor root's, DataLoss where it is damaged: all name it. `num_threads`: that Check may take.
  static absl::StatusOr<std::shared_ptr<PackedFile>> Open(const std::string& path,
                                                          const PackedSource& source,
                                                          int num_threads);

  // The source that the file at `path` names, as far as its directory is whole.
  static std::optional<PackedSource> SourceOf(const std::string& path);

  const PackedSource& source() const { return source_; }
  bool is_mapped() const { return file_ != nullptr; }

  // The matrix of that name: memory that keeps the whole file. Not to be written.
  static std::optional<Buffer> Find(const std::shared_ptr<PackedFile>& packed,
                                    absl::string_view name);

  // To be called before matrices are read, and again within seconds (LeasedFile). The first time
  // all their bytes are held against their digests. DataLoss from then on where they are others, or
  // are gone; a file that is damaged is removed. One thread at a time.
  absl::Status Check();
  // The same for who reads none meanwhile: takes a copy where somebody waits to change the file,
  // and looks at no bytes else. Returns whether to call it again within seconds. One thread at a
  // time.
  absl::StatusOr<bool> Keep();

 private:
  struct Entry {
    uint64_t begin;
    uint64_t bytes;
    Digest digest;
  };

  PackedFile(std::string path, int num_threads)
      : path_(std::move(path)), num_threads_(num_threads) {}
  absl::Span<const char> bytes() const { return file_ ? file_->bytes() : copy_.chars(); }
  absl::Status ReadDirectory();
  absl::Status CheckBytes(absl::Span<const char> bytes) const;
  absl::Status Damaged(absl::string_view how) const;

  const std::string path_;
  const int num_threads_;
  std::shared_ptr<LeasedFile> file_;  // or
  Buffer copy_;
  PackedSource source_;
  HashMap<std::string, Entry> entries_;
  bool checked_ = false;
  absl::Status status_;
};

// One thread at a time.
class PackedFileWriter {
 public:
  // Makes the folders above the file. AlreadyExists where another is writing it just now. Without
  // Finish what was written is removed.
  static absl::StatusOr<std::unique_ptr<PackedFileWriter>> Create(const std::string& path);

  // Each name once. What goes wrong is Finish's to say; nothing is written behind it.
  const absl::Status& status() const { return status_; }
  void Add(const std::string& name, absl::Span<const char> bytes);
  // Puts the bytes on the disk and the file under its name, to be read only.
  absl::Status Finish(const PackedSource& source);

 private:
  PackedFileWriter(const std::string& path, std::unique_ptr<LockedPart> part)
      : path_(path), part_(std::move(part)) {}
  absl::Status Write(absl::string_view bytes);

  const std::string path_;
  const std::unique_ptr<LockedPart> part_;
  uint64_t end_ = 0;
  std::string directory_;  // of what was added, a JSON array's members
  absl::Status status_;
};

}  // namespace lm

#endif  // LM_ENGINE_MODEL_PACKED_FILE_H_
