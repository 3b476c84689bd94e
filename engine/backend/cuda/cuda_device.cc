#include "engine/backend/cuda/cuda_device.h"

#include "absl/strings/str_cat.h"
#include "engine/backend/cuda/device_list.h"
#include "engine/base/status_macros.h"

namespace lm {

CudaDevice::CudaDevice(const CudaApi& api, int index)
    : api_(api), index_(index), name_(absl::StrCat("cuda:", index)), queue_{&api, nullptr} {}

absl::StatusOr<std::unique_ptr<CudaDevice>> CudaDevice::Open(const CudaApi& api, int index) {
  RETURN_IF_ERROR(CheckCudaDevice(api, index));
  std::unique_ptr<CudaDevice> device(new CudaDevice(api, index));
  absl::Status status = device->Begin();
  if (status.ok()) {
    status = device->Check(api.StreamCreateWithFlags(&device->queue_.stream, cudaStreamNonBlocking),
                           "opening the device");
  }
  if (!status.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat("no CUDA device: ", device->name_, " cannot be used: ", status.message()));
  }
  return device;
}

CudaDevice::~CudaDevice() {
  if (queue_.stream != nullptr) api_.StreamDestroy(queue_.stream);
}

absl::Status CudaDevice::Begin() {
  if (!lost_.empty()) return absl::UnavailableError(lost_);
  return Check(api_.SetDevice(index_), "cudaSetDevice");
}

absl::Status CudaDevice::Check(cudaError_t error, absl::string_view op) {
  if (error == cudaSuccess) return absl::OkStatus();
  if (!lost_.empty()) return absl::UnavailableError(lost_);
  std::string what = absl::StrCat(op, ": ", cudaGetErrorString(error), " (CUDA error ",
                                  static_cast<int>(error), ")");
  api_.GetLastError();
  // A refused call leaves the queue in order; after a fault, waiting for it fails too.
  if (api_.StreamSynchronize(queue_.stream) != cudaSuccess) {
    lost_ = absl::StrCat("device ", name_, " is lost after ", what);
    return absl::UnavailableError(lost_);
  }
  if (error == cudaErrorMemoryAllocation) {
    return absl::ResourceExhaustedError(absl::StrCat(name_, ": ", what));
  }
  return absl::InternalError(absl::StrCat(name_, ": ", what));
}

absl::StatusOr<Buffer> CudaDevice::Allocate(size_t bytes) {
  RETURN_IF_ERROR(Begin());
  if (bytes == 0) return Buffer();
  void* data = nullptr;
  cudaError_t error = api_.Malloc(&data, bytes);
  if (error == cudaErrorMemoryAllocation) return OutOfMemory(bytes);
  RETURN_IF_ERROR(Check(error, "cudaMalloc"));
  // cudaFree waits for the work that may still use the memory.
  Buffer buffer(data, bytes, [api = &api_](void* memory, size_t) { api->Free(memory); });
  RETURN_IF_ERROR(Zero(data, bytes));
  return buffer;
}

absl::Status CudaDevice::OutOfMemory(size_t bytes) {
  absl::Status status = Check(cudaErrorMemoryAllocation, "cudaMalloc");
  if (!absl::IsResourceExhausted(status)) return status;
  size_t free = 0;
  size_t total = 0;
  RETURN_IF_ERROR(Check(api_.MemGetInfo(&free, &total), "cudaMemGetInfo"));
  return absl::ResourceExhaustedError(absl::StrCat(name_, ": cannot allocate ", bytes,
                                                   " bytes: ", free, " of ", total, " are free"));
}

absl::Status CudaDevice::Upload(const void* from, void* to, size_t bytes) {
  RETURN_IF_ERROR(Begin());
  if (bytes == 0) return absl::OkStatus();
  RETURN_IF_ERROR(
      Check(api_.MemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, queue_.stream), "Upload"));
  return Check(api_.StreamSynchronize(queue_.stream), "Upload");
}

absl::Status CudaDevice::Download(const void* from, void* to, size_t bytes) {
  RETURN_IF_ERROR(Begin());
  if (bytes == 0) return absl::OkStatus();
  RETURN_IF_ERROR(
      Check(api_.MemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, queue_.stream), "Download"));
  return Check(api_.StreamSynchronize(queue_.stream), "Download");
}

absl::Status CudaDevice::Synchronize() {
  RETURN_IF_ERROR(Begin());
  return Check(api_.StreamSynchronize(queue_.stream), "Synchronize");
}

absl::Status CudaDevice::Copy(const void* from, void* to, size_t bytes) {
  RETURN_IF_ERROR(Begin());
  if (bytes == 0) return absl::OkStatus();
  return Check(api_.MemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, queue_.stream), "Copy");
}

absl::Status CudaDevice::Copy2D(const void* from, void* to, size_t pitch, size_t width,
                                size_t height) {
  RETURN_IF_ERROR(Begin());
  return Check(api_.Memcpy2DAsync(to, pitch, from, pitch, width, height, cudaMemcpyDeviceToDevice,
                                  queue_.stream),
               "cudaMemcpy2DAsync");
}

absl::Status CudaDevice::Zero(void* data, size_t bytes) {
  RETURN_IF_ERROR(Begin());
  if (bytes == 0) return absl::OkStatus();
  return Check(api_.MemsetAsync(data, 0, bytes, queue_.stream), "cudaMemsetAsync");
}

absl::StatusOr<void*> CudaScratch::Reserve(CudaDevice* device, size_t bytes) {
  if (bytes > buffer_.bytes()) {
    RETURN_IF_ERROR(device->Synchronize());  // what was put into the queue may use it
    buffer_ = Buffer();                      // first, so that both need not fit
    ASSIGN_OR_RETURN(buffer_, device->Allocate(bytes));
  }
  return buffer_.data();
}

}  // namespace lm
