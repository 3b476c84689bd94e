// ReadAhead: has the system read a model's files some way ahead of those who read them. A reader
// that computes between its reads would else wait for the disk and compute in turns.
#ifndef LM_ENGINE_GGUF_READ_AHEAD_H_
#define LM_ENGINE_GGUF_READ_AHEAD_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "engine/base/file.h"

namespace lm {

// Thread-safe.
class ReadAhead {
 public:
  // What is asked for at once, and how far ahead of a reader: enough to keep a disk busy, little
  // beside any memory that a model fits in.
  static constexpr uint64_t kPieceBytes = uint64_t{4} << 20;
  static constexpr uint64_t kPiecesAhead = 32;

  explicit ReadAhead(const ModelFiles& files);

  // The bytes from `offset` of file number `file` on are being read. Nothing is asked for twice.
  void Reading(int file, uint64_t offset);

 private:
  struct File {
    std::shared_ptr<const RandomAccessFile> file;
    std::vector<bool> asked;  // of its pieces
  };

  absl::Mutex mutex_;
  std::vector<File> files_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lm

#endif  // LM_ENGINE_GGUF_READ_AHEAD_H_
