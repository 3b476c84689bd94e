// One GPU: its memory, its queue of work, and whether it still answers.
//
// Errors. Every call of the runtime goes through Check, which names the op and CUDA's error:
// ResourceExhausted for memory, Unavailable for a device that is lost, Internal for the rest. An
// error that is still there after it was cleared ("sticky": a fault inside a kernel, a GPU that
// fell off the bus) has ended this process's work on the device: it is lost, and whatever is asked
// of it later is Unavailable. Where CUDA says that only a new process helps the error does, too.
//
// One thread at a time, but any: another device may be its current one (device_guard.h).
#ifndef LM_ENGINE_BACKEND_CUDA_CUDA_DEVICE_H_
#define LM_ENGINE_BACKEND_CUDA_CUDA_DEVICE_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/backend/cuda/cuda_api.h"
#include "engine/backend/cuda/cuda_backend.h"
#include "engine/backend/cuda/kernels.h"
#include "engine/backend/cuda/launch_recorder.h"
#include "engine/tensor/buffer.h"

namespace lm {

class CudaDevice {
 public:
  // FailedPrecondition, saying why, where GPU number `index` is not to be had, or this build has no
  // kernels for it. Devices that compute together have one recorder; null: it is for this one
  // alone. REQUIRES: `api` outlives the device and all its buffers.
  static absl::StatusOr<std::unique_ptr<CudaDevice>> Open(
      const CudaApi& api, int index, std::shared_ptr<LaunchRecorder> recorder = nullptr);
  ~CudaDevice();
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  int index() const { return index_; }
  const CudaDeviceInfo& info() const { return info_; }
  const std::string& name() const { return name_; }  // "cuda:0"
  // Whether a step may begin before the one before has been read: unless LM_CUDA_SERIAL is set
  // (kernel_order.cuh).
  bool queues_steps() const { return queues_steps_; }

  // To be called before anything is put into the queue. Unavailable where the device is lost.
  absl::Status Begin() const;
  absl::Status Check(cudaError_t error, absl::string_view op);
  // Where kernels go: they wait there until they are flushed, which all calls below do but Stage.
  // REQUIRES: Begin().
  const cuda::Queue& queue() const { return queue_; }

  // Zeroed memory.
  absl::StatusOr<Buffer> Allocate(size_t bytes);
  absl::StatusOr<int64_t> FreeBytes();
  // While it rehearses what is put into the queue is looked at, and forgotten: kernels are brought
  // to the device. Memory is given as ever.
  bool rehearses() const { return rehearses_; }
  void set_rehearses(bool rehearses);
  // Memory of the host, page-locked where the system gives such: not zeroed.
  absl::StatusOr<Buffer> AllocatePinned(size_t bytes);
  // Afterwards the host's memory is the caller's again.
  absl::Status Upload(const void* from, void* to, size_t bytes);
  // The same, but that it is so behind the next Synchronize.
  absl::Status Send(const void* from, void* to, size_t bytes);
  absl::Status Download(const void* from, void* to, size_t bytes);
  // The same, but that it is so behind the next AwaitDownload, which waits for no more than what
  // was put into the queue until here, also where there are no bytes. Where `to` is not page-locked
  // this may wait itself. REQUIRES: there is one at a time.
  absl::Status BeginDownload(const void* from, void* to, size_t bytes);
  absl::Status AwaitDownload();
  absl::Status Synchronize();
  // Launches the kernels that wait.
  absl::Status Flush();
  // Small tables: an Upload that neither waits nor flushes. The host's memory is the caller's
  // again. REQUIRES: no kernel that waits in the queue reads or writes `to`.
  absl::Status Stage(const void* from, void* to, size_t bytes);
  // Within the device; the second, `height` runs of `width` bytes, `pitch` bytes apart.
  absl::Status Copy(const void* from, void* to, size_t bytes);
  absl::Status Zero(void* data, size_t bytes);

 private:
  CudaDevice(const CudaApi& api, int index, const CudaDeviceInfo& info,
             std::shared_ptr<LaunchRecorder> recorder);

  absl::Status Open();
  // Check of function(), the device being this thread's current one.
  template <typename Function>
  absl::Status Call(absl::string_view op, Function function);
  absl::Status CopyAsync(absl::string_view op, void* to, const void* from, size_t bytes,
                         cudaMemcpyKind kind);
  cudaError_t Wait();  // for the queue
  absl::StatusOr<char*> StagingRoom(size_t bytes);
  absl::Status OutOfMemory(size_t bytes);
  absl::Status Fill(void* data, size_t bytes);  // with zeros

  const CudaApi& api_;
  const int index_;
  const CudaDeviceInfo info_;
  const std::string name_;
  cudaStream_t stream_ = nullptr;
  // Its buffers flush it before they are freed, and may outlive the device.
  const std::shared_ptr<LaunchRecorder> recorder_;
  cuda::Queue queue_ = {};
  // Page-locked memory, for what is staged and for small downloads, in two halves: when one is full
  // the other one's copies are waited for, which are long over. Copies that nobody has waited for
  // may use all of the other half, and the first staged_ bytes of half number half_.
  char* staging_ = nullptr;
  int half_ = 0;
  size_t staged_ = 0;
  struct Event {
    cudaEvent_t event = nullptr;
    bool recorded = false;  // and not waited for
  };
  Event left_[2];     // the last time that this half was full
  Event downloaded_;  // BeginDownload's
  absl::Status Record(Event* event);
  absl::Status AwaitEvent(Event* event);
  bool rehearses_ = false;
  bool queues_steps_ = true;
  std::string lost_;  // "cuda:0 is lost after …", or empty
};

// Device memory that grows to what is asked of it and keeps nothing.
class CudaScratch {
 public:
  absl::StatusOr<void*> Reserve(CudaDevice* device, size_t bytes);
  void* data() const { return buffer_.data(); }
  size_t bytes() const { return buffer_.bytes(); }

 private:
  Buffer buffer_;
};

}  // namespace lm

#endif  // LM_ENGINE_BACKEND_CUDA_CUDA_DEVICE_H_
