// WeightUpload: matrices of a file on their way to the device. Several threads read some rows while
// the device copies those before them, out of page-locked memory, and packs them.
//
//   WeightUpload upload(device);
//   upload.Bring(dtype, rows, cols, read, [](const void* raw, int64_t first, int64_t count) {
//     return Pack(raw, first, count);  // `raw` is in the device's memory
//   });
//   upload.End();                      // when the last matrix is there
#ifndef LM_ENGINE_BACKEND_CUDA_WEIGHT_UPLOAD_H_
#define LM_ENGINE_BACKEND_CUDA_WEIGHT_UPLOAD_H_

#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "engine/backend/backend.h"
#include "engine/backend/cuda/cuda_device.h"
#include "engine/base/thread_pool.h"

namespace lm {

class WeightUpload {
 public:
  static constexpr int64_t kSlabBytes = int64_t{32} << 20;

  // Copies so many bytes at a time. REQUIRES: the device outlives it.
  explicit WeightUpload(CudaDevice* device, int64_t slab_bytes = kSlabBytes)
      : device_(device), slab_bytes_(slab_bytes) {}
  ~WeightUpload() { End(); }
  WeightUpload(const WeightUpload&) = delete;
  WeightUpload& operator=(const WeightUpload&) = delete;

  // Has `use` called for all rows of a matrix, some of them at a time (a multiple of
  // cuda::kPanelRows but for the last ones): what that puts into the device's queue, and nothing
  // later, finds the rows [first, first + count) at `raw`, as loaded_blocks.h makes them. May
  // return while the queue is at work. Errors: the reader's, of the lowest rows where there are
  // several; `use`'s; the device's, of earlier matrices too.
  using Use = absl::FunctionRef<absl::Status(const void* raw, int64_t first, int64_t count)>;
  absl::Status Bring(DType dtype, int64_t rows, int64_t cols, RowReader read, Use use);

  // Waits for the queue, and gives all memory and threads back, until the next matrix is brought.
  void End();

 private:
  absl::Status Read(DType dtype, int64_t cols, int64_t first, int64_t count, RowReader read,
                    char* to);

  CudaDevice* const device_;
  const int64_t slab_bytes_;
  std::unique_ptr<ThreadPool> readers_;
  Buffer slabs_[2];         // the host's
  int next_ = 0;            // of them, the one that nothing is copied from
  bool under_way_ = false;  // from the other one something may be
  CudaScratch raw_;
};

}  // namespace lm

#endif  // LM_ENGINE_BACKEND_CUDA_WEIGHT_UPLOAD_H_
