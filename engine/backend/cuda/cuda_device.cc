#include "engine/backend/cuda/cuda_device.h"

#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/backend/cuda/device_guard.h"
#include "engine/backend/cuda/device_list.h"
#include "engine/base/status_macros.h"

namespace lm {
namespace {

constexpr size_t kStagingBytes = size_t{4} << 20, kHalf = kStagingBytes / 2;
constexpr size_t kStagingAlignment = 16;

std::string ErrorText(absl::string_view op, cudaError_t error) {
  return absl::StrCat(op, ": ", CudaErrorText(error));
}

}  // namespace

CudaDevice::CudaDevice(const CudaApi& api, int index, const CudaDeviceInfo& info,
                       std::shared_ptr<LaunchRecorder> recorder)
    : api_(api),
      index_(index),
      info_(info),
      name_(absl::StrCat("cuda:", index)),
      recorder_(std::move(recorder)) {}

absl::StatusOr<std::unique_ptr<CudaDevice>> CudaDevice::Open(
    const CudaApi& api, int index, std::shared_ptr<LaunchRecorder> recorder) {
  ASSIGN_OR_RETURN(const CudaDeviceInfo info, FindCudaDevice(api, index));
  if (recorder == nullptr) recorder = std::make_shared<LaunchRecorder>(api);
  std::unique_ptr<CudaDevice> device(new CudaDevice(api, index, info, std::move(recorder)));
  const absl::Status status = device->Open();
  if (!status.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat("no CUDA device: ", device->name_, " cannot be used: ", status.message()));
  }
  return device;
}

absl::Status CudaDevice::Open() {
  constexpr absl::string_view kOp = "opening the device";
  const DeviceGuard guard(api_, index_);
  RETURN_IF_ERROR(Check(guard.error(), kOp));
  cudaFuncAttributes attributes = {};
  const cudaError_t error = api_.FuncGetAttributes(&attributes, cuda::SomeKernel());
  if (error != cudaSuccess) {
    api_.GetLastError();
    return absl::FailedPreconditionError(
        absl::StrCat(info_.name, " has compute capability ", info_.compute_major, ".",
                     info_.compute_minor, ", and this build's kernels, which are for ",
                     CudaArchitectures(), ", do not run there: ", ErrorText(kOp, error)));
  }
  RETURN_IF_ERROR(Check(api_.StreamCreateWithFlags(&stream_, cudaStreamNonBlocking), kOp));
  // What a kernel's code was made for is __CUDA_ARCH__.
  constexpr int kOverlap = 90;
  const char* serial = std::getenv("LM_CUDA_SERIAL");
  queues_steps_ = serial == nullptr;
  const bool overlaps = 10 * info_.compute_major >= kOverlap && attributes.ptxVersion >= kOverlap &&
                        (serial == nullptr || absl::string_view(serial) == "steps");
  queue_ = {recorder_.get(), recorder_->AddQueue(index_, stream_, overlaps),
            info_.multiprocessor_bytes};
  void* staging = nullptr;
  RETURN_IF_ERROR(Check(api_.MallocHost(&staging, kStagingBytes), kOp));
  staging_ = static_cast<char*>(staging);
  for (Event* event : {&left_[0], &left_[1], &downloaded_}) {
    RETURN_IF_ERROR(Check(api_.EventCreate(&event->event), kOp));
  }
  return absl::OkStatus();
}

CudaDevice::~CudaDevice() {
  recorder_->Close();
  const DeviceGuard guard(api_, index_);
  for (const Event& event : {left_[0], left_[1], downloaded_}) {
    if (event.event != nullptr) api_.EventDestroy(event.event);
  }
  if (staging_ != nullptr) api_.FreeHost(staging_);
  if (stream_ != nullptr) api_.StreamDestroy(stream_);
}

absl::Status CudaDevice::Begin() const {
  return lost_.empty() ? absl::OkStatus() : absl::UnavailableError(lost_);
}

absl::Status CudaDevice::Check(cudaError_t error, absl::string_view op) {
  if (error == cudaSuccess) return absl::OkStatus();
  RETURN_IF_ERROR(Begin());
  const std::string what = ErrorText(op, error);
  api_.GetLastError();
  // A refused call leaves the queue in order; after a fault, waiting for it fails too.
  if (stream_ != nullptr && Wait() != cudaSuccess) {
    recorder_->Close();
    lost_ = absl::StrCat("device ", name_, " is lost after ", what);
    return absl::UnavailableError(lost_);
  }
  if (error == cudaErrorMemoryAllocation) {
    return absl::ResourceExhaustedError(absl::StrCat(name_, ": ", what));
  }
  return absl::InternalError(absl::StrCat(name_, ": ", what));
}

cudaError_t CudaDevice::Wait() {
  const DeviceGuard guard(api_, index_);
  return guard.error() == cudaSuccess ? api_.StreamSynchronize(stream_) : guard.error();
}

template <typename Function>
absl::Status CudaDevice::Call(absl::string_view op, Function function) {
  RETURN_IF_ERROR(Begin());
  const DeviceGuard guard(api_, index_);
  return Check(guard.error() == cudaSuccess ? function() : guard.error(), op);
}

absl::StatusOr<Buffer> CudaDevice::Allocate(size_t bytes) {
  RETURN_IF_ERROR(Begin());
  if (bytes == 0) return Buffer();
  void* data = nullptr;
  bool full = false;
  RETURN_IF_ERROR(Call("cudaMalloc", [&] {
    const cudaError_t error = api_.Malloc(&data, bytes);
    full = error == cudaErrorMemoryAllocation;
    return full ? cudaSuccess : error;
  }));
  if (full) return OutOfMemory(bytes);
  // cudaFree waits for the work in the queue that may still use the memory.
  Buffer buffer(data, bytes,
                [api = &api_, device = index_, recorder = recorder_](void* memory, size_t) {
                  recorder->FlushForNow();
                  const DeviceGuard guard(*api, device);
                  api->Free(memory);
                });
  RETURN_IF_ERROR(Fill(data, bytes));
  return buffer;
}

absl::StatusOr<Buffer> CudaDevice::AllocatePinned(size_t bytes) {
  void* data = nullptr;
  RETURN_IF_ERROR(Call("cudaMallocHost", [&] {
    const cudaError_t error = api_.MallocHost(&data, bytes);
    if (error != cudaErrorMemoryAllocation) return error;
    api_.GetLastError();  // which is forgotten so
    data = nullptr;
    return cudaSuccess;
  }));
  if (data == nullptr) return Buffer::AllocateHost(bytes);
  return Buffer(data, bytes, [api = &api_, device = index_](void* memory, size_t) {
    const DeviceGuard guard(*api, device);
    api->FreeHost(memory);
  });
}

absl::StatusOr<int64_t> CudaDevice::FreeBytes() {
  size_t free = 0;
  size_t total = 0;
  RETURN_IF_ERROR(Call("cudaMemGetInfo", [&] { return api_.MemGetInfo(&free, &total); }));
  return static_cast<int64_t>(free);
}

void CudaDevice::set_rehearses(bool rehearses) {
  rehearses_ = rehearses;
  recorder_->set_rehearses(rehearses);
}

absl::Status CudaDevice::OutOfMemory(size_t bytes) {
  absl::Status status = Check(cudaErrorMemoryAllocation, "cudaMalloc");
  if (!absl::IsResourceExhausted(status)) return status;
  size_t free = 0;
  size_t total = 0;
  RETURN_IF_ERROR(Call("cudaMemGetInfo", [&] { return api_.MemGetInfo(&free, &total); }));
  return absl::ResourceExhaustedError(absl::StrCat(name_, ": cannot allocate ", bytes,
                                                   " bytes: ", free, " of ", total, " are free"));
}

absl::Status CudaDevice::Flush() {
  RETURN_IF_ERROR(Begin());
  return Check(recorder_->Flush(), "launching kernels");
}

absl::Status CudaDevice::CopyAsync(absl::string_view op, void* to, const void* from, size_t bytes,
                                   cudaMemcpyKind kind) {
  return Call(op, [&] { return api_.MemcpyAsync(to, from, bytes, kind, stream_); });
}

absl::Status CudaDevice::Upload(const void* from, void* to, size_t bytes) {
  if (bytes == 0) return Begin();
  RETURN_IF_ERROR(Flush());
  if (rehearses_) return absl::OkStatus();
  if (bytes <= kStagingBytes / 4) return Stage(from, to, bytes);
  RETURN_IF_ERROR(CopyAsync("Upload", to, from, bytes, cudaMemcpyHostToDevice));
  return Synchronize();
}

absl::Status CudaDevice::Send(const void* from, void* to, size_t bytes) {
  RETURN_IF_ERROR(Flush());
  if (bytes == 0 || rehearses_) return absl::OkStatus();
  return CopyAsync("Upload", to, from, bytes, cudaMemcpyHostToDevice);
}

absl::Status CudaDevice::Stage(const void* from, void* to, size_t bytes) {
  if (bytes > kHalf) return Upload(from, to, bytes);
  RETURN_IF_ERROR(Begin());
  if (bytes == 0 || rehearses_) return absl::OkStatus();
  ASSIGN_OR_RETURN(char* const place, StagingRoom(bytes));
  std::memcpy(place, from, bytes);
  staged_ += (bytes + kStagingAlignment - 1) / kStagingAlignment * kStagingAlignment;
  return CopyAsync("Upload", to, place, bytes, cudaMemcpyHostToDevice);
}

// Of page-locked memory that no copy uses any more; as long as nothing else is staged.
absl::StatusOr<char*> CudaDevice::StagingRoom(size_t bytes) {
  if (staged_ + bytes > kHalf) {
    RETURN_IF_ERROR(Record(&left_[half_]));
    half_ = 1 - half_;
    staged_ = 0;
    RETURN_IF_ERROR(AwaitEvent(&left_[half_]));
  }
  return staging_ + half_ * kHalf + staged_;
}

absl::Status CudaDevice::Record(Event* event) {
  RETURN_IF_ERROR(Call("cudaEventRecord", [&] { return api_.EventRecord(event->event, stream_); }));
  event->recorded = true;
  return absl::OkStatus();
}

absl::Status CudaDevice::AwaitEvent(Event* event) {
  if (!std::exchange(event->recorded, false)) return Begin();
  return Call("Synchronize", [&] { return api_.EventSynchronize(event->event); });
}

absl::Status CudaDevice::BeginDownload(const void* from, void* to, size_t bytes) {
  RETURN_IF_ERROR(Flush());
  if (rehearses_) return absl::OkStatus();
  if (bytes > 0) {
    RETURN_IF_ERROR(CopyAsync("Download", to, from, bytes, cudaMemcpyDeviceToHost));
  }
  return Record(&downloaded_);
}

absl::Status CudaDevice::AwaitDownload() { return AwaitEvent(&downloaded_); }

absl::Status CudaDevice::Download(const void* from, void* to, size_t bytes) {
  if (bytes == 0) return Begin();
  RETURN_IF_ERROR(Flush());
  if (rehearses_) return absl::OkStatus();
  const bool small = bytes <= kHalf;  // else it is not worth a copy
  char* place = nullptr;
  if (small) {
    ASSIGN_OR_RETURN(place, StagingRoom(bytes));
  }
  RETURN_IF_ERROR(CopyAsync("Download", small ? place : to, from, bytes, cudaMemcpyDeviceToHost));
  RETURN_IF_ERROR(Synchronize());
  if (small) std::memcpy(to, place, bytes);
  return absl::OkStatus();
}

absl::Status CudaDevice::Synchronize() {
  RETURN_IF_ERROR(Flush());
  RETURN_IF_ERROR(Check(Wait(), "Synchronize"));
  staged_ = 0;
  left_[0].recorded = left_[1].recorded = false;
  return absl::OkStatus();
}

absl::Status CudaDevice::Copy(const void* from, void* to, size_t bytes) {
  if (bytes == 0) return Begin();
  RETURN_IF_ERROR(Flush());
  if (rehearses_) return absl::OkStatus();
  return CopyAsync("Copy", to, from, bytes, cudaMemcpyDeviceToDevice);
}

absl::Status CudaDevice::Zero(void* data, size_t bytes) {
  if (bytes == 0 || rehearses_) return Begin();
  return Fill(data, bytes);
}

absl::Status CudaDevice::Fill(void* data, size_t bytes) {
  RETURN_IF_ERROR(Flush());
  return Call("cudaMemsetAsync", [&] { return api_.MemsetAsync(data, 0, bytes, stream_); });
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
