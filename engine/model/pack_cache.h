// PackCache: a folder of packed weights (packed_file.h), one file a model: the first process that
// loads a model packs its matrices and leaves them there, the others map them and share their
// memory.
//
//   PackCache cache("/var/cache/lm", path, *gguf, plan, threads, cancel);
//   ASSIGN_OR_RETURN(auto matrix, cache.Load(name, dtype, rows, cols, read, backend));   // all
//   cache.Finish(digest);
#ifndef LM_ENGINE_MODEL_PACK_CACHE_H_
#define LM_ENGINE_MODEL_PACK_CACHE_H_

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/backend/backend.h"
#include "engine/gguf/gguf_file.h"
#include "engine/model/packed_file.h"

namespace lm {

// What is wrong with the folder is no reason not to load: state() says it. One thread at a time.
class PackCache {
 public:
  // `plan`: which layers are on which device; `adopts`: any of them adopts matrices. Where another
  // process is writing the file, waits for it some seconds, until `cancel` is set at most.
  // REQUIRES: `gguf`, which was opened from `path`, outlives this.
  PackCache(const std::string& folder, const std::string& path, const GgufFile& gguf,
            const std::string& plan, bool adopts, int num_threads, const std::atomic<bool>& cancel);

  // The matrix from the file, or LoadMatrix's; `name` is that of its contents.
  absl::StatusOr<std::unique_ptr<WeightMatrix>> Load(const std::string& name, DType dtype,
                                                     int64_t rows, int64_t cols, RowReader read,
                                                     Backend* backend);

  // Where matrices came from a file: it, which is to be checked before they are read. Else null.
  std::shared_ptr<PackedFile> packed() const { return packed_; }
  // The digest of the model, where the file knows it.
  std::optional<std::string> digest() const;

  // After the last matrix. Leaves what was packed for others, and takes away what is there of other
  // states of the same model, or of older releases.
  void Finish(const std::string& digest);

  // "mapped", "read", "written"; else why the cache was of no use.
  const std::string& state() const { return state_; }

 private:
  absl::StatusOr<PackedSource> Identify() const;
  void Prepare(bool adopts, const std::atomic<bool>& cancel);
  bool OpenPacked();
  absl::StatusOr<std::unique_ptr<PackedFileWriter>> BeginWriting(
      const std::atomic<bool>& cancel) const;
  void RemoveOthers() const;

  const std::string folder_, model_path_;
  const GgufFile& gguf_;
  const std::string plan_;
  const int num_threads_;
  std::string path_;  // of the file
  PackedSource source_;
  std::shared_ptr<PackedFile> packed_;
  std::unique_ptr<PackedFileWriter> writer_;
  HashSet<std::string> added_;
  std::string state_;
};

}  // namespace lm

#endif  // LM_ENGINE_MODEL_PACK_CACHE_H_
