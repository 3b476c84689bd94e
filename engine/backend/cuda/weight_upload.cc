#include "engine/backend/cuda/weight_upload.h"

#include <algorithm>

#include "engine/backend/cuda/kernels.h"
#include "engine/backend/cuda/loaded_blocks.h"
#include "engine/base/cpu_features.h"
#include "engine/base/first_error.h"
#include "engine/base/status_macros.h"

namespace lm {
namespace {

constexpr int64_t kPieceBytes = int64_t{1} << 20;  // that a thread reads at a time
constexpr int kMostReaders = 8;

}  // namespace

absl::Status WeightUpload::Bring(DType dtype, int64_t rows, int64_t cols, RowReader read, Use use) {
  if (readers_ == nullptr) {
    readers_ = std::make_unique<ThreadPool>(std::min(DefaultThreads(), kMostReaders));
  }
  const int64_t row_bytes = cuda::RowBytesOnDevice(dtype, cols);
  const int64_t slab_rows = std::max<int64_t>(
      slab_bytes_ / row_bytes / cuda::kPanelRows * cuda::kPanelRows, cuda::kPanelRows);
  for (int64_t first = 0; first < rows; first += slab_rows) {
    const int64_t count = std::min(slab_rows, rows - first);
    const auto bytes = static_cast<size_t>(count * row_bytes);
    Buffer& slab = slabs_[next_];
    if (slab.bytes() < bytes) {
      slab = Buffer();
      const size_t whole = std::max(bytes, static_cast<size_t>(slab_bytes_));
      ASSIGN_OR_RETURN(slab, device_->AllocatePinned(whole));
    }
    RETURN_IF_ERROR(Read(dtype, cols, first, count, read, slab.chars().data()));
    if (under_way_) RETURN_IF_ERROR(device_->Synchronize());
    under_way_ = false;
    ASSIGN_OR_RETURN(void* raw, raw_.Reserve(device_, bytes));
    under_way_ = true;
    next_ = 1 - next_;
    RETURN_IF_ERROR(device_->Send(slab.data(), raw, bytes));
    RETURN_IF_ERROR(use(raw, first, count));
    RETURN_IF_ERROR(device_->Flush());
  }
  return absl::OkStatus();
}

// Rows [first, first + count), made the device's, to `to`.
absl::Status WeightUpload::Read(DType dtype, int64_t cols, int64_t first, int64_t count,
                                RowReader read, char* to) {
  const int64_t row_bytes = RowBytes(dtype, cols);
  const int64_t row_on_device = cuda::RowBytesOnDevice(dtype, cols);
  const int64_t piece = std::max<int64_t>(kPieceBytes / row_bytes, 1);
  FirstError error;
  readers_->ParallelFor((count + piece - 1) / piece, [&](int64_t i) {
    const int64_t begin = i * piece;
    const int64_t rows = std::min(piece, count - begin);
    if (error.Precedes(begin)) return;  // what comes later need not be read
    absl::Status status;
    if (!cuda::ChangesOnDevice(dtype)) {
      status = read(first + begin, rows, to + begin * row_bytes);
    } else {
      absl::StatusOr<Buffer> blocks = Buffer::AllocateHost(rows * row_bytes);
      status = blocks.status();
      if (status.ok()) status = read(first + begin, rows, blocks->chars().data());
      if (status.ok()) {
        cuda::WriteBlocksOnDevice(dtype, blocks->chars(), to + begin * row_on_device);
      }
    }
    if (!status.ok()) error.Add(begin, std::move(status));
  });
  return error.status();
}

void WeightUpload::End() {
  if (under_way_) device_->Synchronize().IgnoreError();
  under_way_ = false;
  for (Buffer& slab : slabs_) slab = Buffer();
  raw_ = CudaScratch();
  readers_.reset();
}

}  // namespace lm
