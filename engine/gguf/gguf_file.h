// Reads GGUF v2 and v3 model files: metadata, tensor directory, tensor bytes.
//
//   ASSIGN_OR_RETURN(std::unique_ptr<GgufFile> gguf, GgufFile::Open("model.gguf"));
//   ASSIGN_OR_RETURN(std::string arch, gguf->metadata().GetString("general.architecture"));
//   const TensorInfo* info = gguf->FindTensor("token_embd.weight");
//   RETURN_IF_ERROR(gguf->ReadTensor(*info, bytes));
//
// The file is untrusted input: every count is bounded by the bytes that are left before anything is
// allocated for it, every size goes through checked_math.h, and each refusal names the key or the
// tensor and the numbers. A model in several files (name-00001-of-0000N.gguf) is opened by the path
// of any of them.
// Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#ifndef LM_ENGINE_GGUF_GGUF_FILE_H_
#define LM_ENGINE_GGUF_GGUF_FILE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/base/file.h"
#include "engine/base/hash_map.h"
#include "engine/gguf/metadata.h"
#include "engine/gguf/tensor_directory.h"

namespace lm {

struct GgufPart;

// Immutable after Open, but for its observer; thread-safe.
class GgufFile {
 public:
  // Opens a model file, or all the parts of a split one given any of them. Once `cancel`, where
  // there is one, is set, all reading of it is Cancelled. REQUIRES: *cancel outlives the result.
  static absl::StatusOr<std::unique_ptr<GgufFile>> Open(const std::string& path,
                                                        const std::atomic<bool>* cancel = nullptr);
  // The same over given files, in order.
  static absl::StatusOr<std::unique_ptr<GgufFile>> Open(
      std::vector<std::unique_ptr<RandomAccessFile>> files,
      const std::atomic<bool>* cancel = nullptr);

  // Of a split model: the first part's.
  const Metadata& metadata() const { return metadata_; }
  const std::vector<TensorInfo>& tensors() const { return tensors_; }

  // nullptr where there is none of that name.
  const TensorInfo* FindTensor(absl::string_view name) const;

  // Fills `out` with the tensor's bytes from `begin` on. An error names the tensor, the file and
  // the reason. Thread-safe. REQUIRES: begin + out.size() <= info.bytes, both are of whole blocks
  // as stored, and info is one of tensors().
  absl::Status ReadTensor(const TensorInfo& info, absl::Span<char> out, uint64_t begin = 0) const;

  // Called with each tensor of which ReadTensor reads, from its thread.
  void set_observer(std::function<void(const TensorInfo&)> observer) {
    observer_ = std::move(observer);
  }

  // The file that holds the tensor, for who reads of it later: it stays open, and reading it is not
  // cancelled. REQUIRES: info.form is kPlain.
  std::shared_ptr<const RandomAccessFile> FileOf(const TensorInfo& info) const {
    return files_[info.split].file;
  }

  // Of all parts, in order; likewise.
  ModelFiles files() const;

  uint32_t version() const { return version_; }
  uint64_t bytes() const;  // of all parts

  // DigestFiles (content_digest.h) of all of them; reading is cancelled as the rest.
  absl::StatusOr<std::string> Digest(int num_threads) const;

 private:
  struct Source {
    std::shared_ptr<const RandomAccessFile> file;
    std::shared_ptr<const RandomAccessFile> reader;  // the same, or a cancellable one over it
  };

  GgufFile() = default;
  static Source MakeSource(std::shared_ptr<const RandomAccessFile> file,
                           const std::atomic<bool>* cancel);
  static absl::StatusOr<std::unique_ptr<GgufFile>> OpenAll(std::vector<Source> sources);

  // Checks that the part belongs where it is put, and takes its tensors.
  absl::Status AddPart(Source source, GgufPart part, int num_parts);
  // Called when all parts are in.
  absl::Status Finish();

  std::vector<Source> files_;
  std::function<void(const TensorInfo&)> observer_;
  uint32_t version_ = 0;
  Metadata metadata_;
  std::vector<TensorInfo> tensors_;
  HashMap<absl::string_view, size_t> index_;  // views of the names in tensors_
};

}  // namespace lm

#endif  // LM_ENGINE_GGUF_GGUF_FILE_H_
