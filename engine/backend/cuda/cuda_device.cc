#include "engine/backend/cuda/cuda_device.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "engine/backend/cuda/device_list.h"
#include "engine/base/status_macros.h"

namespace lm {
namespace {

constexpr size_t kStagingBytes = size_t{4} << 20;
constexpr size_t kStagingAlignment = 16;

}  // namespace

CudaDevice::CudaDevice(const CudaApi& api, int index)
    : api_(api), index_(index), name_(absl::StrCat("cuda:", index)) {}

absl::StatusOr<std::unique_ptr<CudaDevice>> CudaDevice::Open(const CudaApi& api, int index) {
  RETURN_IF_ERROR(CheckCudaDevice(api, index));
  std::unique_ptr<CudaDevice> device(new CudaDevice(api, index));
  absl::Status status = device->Begin();
  if (status.ok()) {
    status = device->Check(api.StreamCreateWithFlags(&device->stream_, cudaStreamNonBlocking),
                           "opening the device");
  }
  if (status.ok()) {
    device->recorder_ = std::make_shared<LaunchRecorder>(api, index, device->stream_);
    device->queue_ = {&api, device->recorder_.get()};
    void* staging = nullptr;
    status = device->Check(api.MallocHost(&staging, kStagingBytes), "opening the device");
    device->staging_ = static_cast<char*>(staging);
  }
  if (!status.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat("no CUDA device: ", device->name_, " cannot be used: ", status.message()));
  }
  return device;
}

CudaDevice::~CudaDevice() {
  if (recorder_ != nullptr) recorder_->Close();
  if (staging_ != nullptr) api_.FreeHost(staging_);
  if (stream_ != nullptr) api_.StreamDestroy(stream_);
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
  if (api_.StreamSynchronize(stream_) != cudaSuccess) {
    if (recorder_ != nullptr) recorder_->Close();
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
  // cudaFree waits for the work in the queue that may still use the memory.
  Buffer buffer(data, bytes, [api = &api_, recorder = recorder_](void* memory, size_t) {
    recorder->FlushForNow();
    api->Free(memory);
  });
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

absl::Status CudaDevice::Flush() {
  RETURN_IF_ERROR(Begin());
  return Check(recorder_->Flush(), "launching kernels");
}

absl::Status CudaDevice::Upload(const void* from, void* to, size_t bytes) {
  if (bytes == 0) return Begin();
  RETURN_IF_ERROR(Flush());
  if (bytes <= kStagingBytes / 4) return Stage(from, to, bytes);
  RETURN_IF_ERROR(
      Check(api_.MemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream_), "Upload"));
  return Synchronize();
}

absl::Status CudaDevice::Stage(const void* from, void* to, size_t bytes) {
  if (bytes > kStagingBytes / 4) return Upload(from, to, bytes);
  RETURN_IF_ERROR(Begin());
  if (bytes == 0) return absl::OkStatus();
  if (staged_ + bytes > kStagingBytes) RETURN_IF_ERROR(Synchronize());
  char* const place = staging_ + staged_;
  std::memcpy(place, from, bytes);
  staged_ += (bytes + kStagingAlignment - 1) / kStagingAlignment * kStagingAlignment;
  return Check(api_.MemcpyAsync(to, place, bytes, cudaMemcpyHostToDevice, stream_), "Upload");
}

absl::Status CudaDevice::Download(const void* from, void* to, size_t bytes) {
  if (bytes == 0) return Begin();
  RETURN_IF_ERROR(Flush());
  const bool small = staged_ + bytes <= kStagingBytes;  // else it is not worth a copy
  char* const place = staging_ + staged_;
  RETURN_IF_ERROR(
      Check(api_.MemcpyAsync(small ? place : to, from, bytes, cudaMemcpyDeviceToHost, stream_),
            "Download"));
  RETURN_IF_ERROR(Synchronize());
  if (small) std::memcpy(to, place, bytes);
  return absl::OkStatus();
}

absl::Status CudaDevice::Synchronize() {
  RETURN_IF_ERROR(Flush());
  RETURN_IF_ERROR(Check(api_.StreamSynchronize(stream_), "Synchronize"));
  staged_ = 0;
  return absl::OkStatus();
}

absl::Status CudaDevice::Copy(const void* from, void* to, size_t bytes) {
  if (bytes == 0) return Begin();
  RETURN_IF_ERROR(Flush());
  return Check(api_.MemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_), "Copy");
}

absl::Status CudaDevice::Copy2D(const void* from, void* to, size_t pitch, size_t width,
                                size_t height) {
  RETURN_IF_ERROR(Flush());
  return Check(
      api_.Memcpy2DAsync(to, pitch, from, pitch, width, height, cudaMemcpyDeviceToDevice, stream_),
      "cudaMemcpy2DAsync");
}

absl::Status CudaDevice::Zero(void* data, size_t bytes) {
  if (bytes == 0) return Begin();
  RETURN_IF_ERROR(Flush());
  return Check(api_.MemsetAsync(data, 0, bytes, stream_), "cudaMemsetAsync");
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
