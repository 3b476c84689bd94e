#include "engine/base/cancellable_file.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"

namespace lm {
namespace {

class CancellableFile final : public RandomAccessFile {
 public:
  CancellableFile(std::shared_ptr<const RandomAccessFile> file, const std::atomic<bool>& cancel)
      : file_(std::move(file)), cancel_(cancel) {}

  uint64_t Size() const override { return file_->Size(); }
  const std::string& path() const override { return file_->path(); }

  absl::Status Read(uint64_t offset, absl::Span<char> out) const override {
    constexpr size_t kMost = size_t{1} << 20;
    do {
      if (cancel_.load(std::memory_order_relaxed)) {
        return absl::CancelledError(absl::StrCat("reading '", path(), "' was cancelled"));
      }
      const absl::Span<char> piece = out.subspan(0, kMost);
      RETURN_IF_ERROR(file_->Read(offset, piece));
      offset += piece.size();
      out.remove_prefix(piece.size());
    } while (!out.empty());
    return absl::OkStatus();
  }

  void WillRead(uint64_t offset, uint64_t bytes) const override { file_->WillRead(offset, bytes); }

 private:
  const std::shared_ptr<const RandomAccessFile> file_;
  const std::atomic<bool>& cancel_;
};

}  // namespace

std::unique_ptr<RandomAccessFile> MakeCancellable(std::shared_ptr<const RandomAccessFile> file,
                                                  const std::atomic<bool>& cancel) {
  return std::make_unique<CancellableFile>(std::move(file), cancel);
}

}  // namespace lm
