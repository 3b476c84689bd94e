#include "engine/backend/cuda/cuda_backend.h"

#include "absl/strings/str_cat.h"
#include "engine/backend/check_arguments.h"
#include "engine/backend/cuda/cuda_collectives.h"
#include "engine/backend/cuda/cuda_ops.h"
#include "engine/base/exit_guard.h"
#include "engine/base/status_macros.h"

namespace lm {

absl::StatusOr<std::unique_ptr<Backend>> CreateCudaBackend(int device) {
  absl::StatusOr<std::unique_ptr<Backend>> backend = CudaBackend::Create(RuntimeApi(), device);
  ExitGuard::StayAheadOf(ExitGuard::Library::kCuda);
  return backend;
}

absl::StatusOr<CudaGroup> CreateCudaGroup(absl::Span<const int> devices) {
  absl::StatusOr<CudaGroup> group = CreateCudaGroup(RuntimeApi(), devices);
  ExitGuard::StayAheadOf(ExitGuard::Library::kCuda);
  return group;
}

absl::StatusOr<std::unique_ptr<Backend>> CudaBackend::Create(
    const CudaApi& api, int device, std::shared_ptr<LaunchRecorder> recorder) {
  ASSIGN_OR_RETURN(std::unique_ptr<CudaDevice> opened,
                   CudaDevice::Open(api, device, std::move(recorder)));
  return std::unique_ptr<Backend>(new CudaBackend(std::move(opened)));
}

absl::StatusOr<Buffer> CudaBackend::Allocate(size_t bytes) { return device_->Allocate(bytes); }

absl::StatusOr<int64_t> CudaBackend::FreeBytes() { return device_->FreeBytes(); }

void CudaBackend::set_rehearsal(const StepBounds* bounds) {
  Backend::set_rehearsal(bounds);
  device_->set_rehearses(bounds != nullptr);
  attention_.set_bounds(bounds);
}

absl::Status CudaBackend::Upload(const void* from, void* to, size_t bytes) {
  return device_->Upload(from, to, bytes);
}

absl::Status CudaBackend::Download(const void* from, void* to, size_t bytes) {
  return device_->Download(from, to, bytes);
}

absl::Status CudaBackend::Synchronize() { return device_->Synchronize(); }

absl::Status CudaBackend::Copy(const void* from, void* to, size_t bytes) {
  return device_->Copy(from, to, bytes);
}

absl::Status CudaBackend::Zero(void* data, size_t bytes) { return device_->Zero(data, bytes); }

absl::Status CudaBackend::PlaceStep() {
  weight_upload_.End();
  if (step().num_picked > static_cast<int32_t>(picked_.places.size())) {
    return absl::InvalidArgumentError(absl::StrCat("the step before picks ", picked_.places.size(),
                                                   " tokens, not ", step().num_picked));
  }
  RETURN_IF_ERROR(placed_.Place(device_.get(), step(), step_index(), picked_.places));
  return attention_.BeginStep(device_.get(), step());
}

absl::Status CudaBackend::Normalize(Tensor x, const Norm& norm, Tensor out) {
  RETURN_IF_ERROR(CheckNormalize(x, norm, out));
  RETURN_IF_ERROR(device_->Begin());
  if (x.rows == 0 || x.cols == 0) return absl::OkStatus();
  return device_->Check(
      cuda::Normalize(device_->queue(), ToMatrix(x), ToNormRow(norm), ToMatrix(out)), "Normalize");
}

absl::Status CudaBackend::GatedActivation(Activation activation, Tensor gate, Tensor up,
                                          Tensor out) {
  if (!up.empty()) RETURN_IF_ERROR(CheckSameShape("GatedActivation", gate, up));
  RETURN_IF_ERROR(CheckSameShape("GatedActivation", gate, out));
  RETURN_IF_ERROR(device_->Begin());
  if (out.rows == 0 || out.cols == 0) return absl::OkStatus();
  return device_->Check(cuda::GatedActivation(device_->queue(), activation, ToMatrix(gate),
                                              ToMatrix(up), ToMatrix(out)),
                        "GatedActivation");
}

absl::Status CudaBackend::Add(Tensor x, Tensor y, float scale) {
  RETURN_IF_ERROR(CheckSameShape("Add", x, y));
  RETURN_IF_ERROR(device_->Begin());
  if (x.rows == 0 || x.cols == 0) return absl::OkStatus();
  return device_->Check(cuda::Add(device_->queue(), ToMatrix(x), ToMatrix(y), scale), "Add");
}

absl::Status CudaBackend::ScaleAndCap(Tensor x, float scale, float cap) {
  RETURN_IF_ERROR(CheckSameShape("ScaleAndCap", x, x));
  RETURN_IF_ERROR(device_->Begin());
  if (x.rows == 0 || x.cols == 0) return absl::OkStatus();
  return device_->Check(cuda::ScaleAndCap(device_->queue(), ToMatrix(x), scale, cap),
                        "ScaleAndCap");
}

absl::Status CudaBackend::ScaleGroups(Tensor x, Tensor factors, Activation activation) {
  RETURN_IF_ERROR(CheckScaleRows(x, factors));
  RETURN_IF_ERROR(device_->Begin());
  if (x.rows == 0 || x.cols == 0) return absl::OkStatus();
  return device_->Check(
      cuda::ScaleGroups(device_->queue(), ToMatrix(x), ToMatrix(factors), activation),
      "ScaleGroups");
}

absl::Status CudaBackend::Clamp(Tensor x, float low, float high) {
  RETURN_IF_ERROR(CheckSameShape("Clamp", x, x));
  RETURN_IF_ERROR(device_->Begin());
  if (x.rows == 0 || x.cols == 0) return absl::OkStatus();
  return device_->Check(cuda::Clamp(device_->queue(), ToMatrix(x), low, high), "Clamp");
}

absl::Status CudaBackend::Dot(Tensor x, Tensor y, Tensor out) {
  RETURN_IF_ERROR(CheckDot(x, y, out));
  RETURN_IF_ERROR(device_->Begin());
  if (x.rows == 0 || x.cols == 0) return absl::OkStatus();
  return device_->Check(cuda::Dot(device_->queue(), ToMatrix(x), ToMatrix(y), ToMatrix(out)),
                        "Dot");
}

absl::Status CudaBackend::MixStreams(Tensor x, Tensor weights, int32_t streams,
                                     ProductResult result, Tensor out) {
  RETURN_IF_ERROR(CheckMixStreams(x, weights, streams, out));
  RETURN_IF_ERROR(device_->Begin());
  if (out.rows == 0 || out.cols == 0) return absl::OkStatus();
  return device_->Check(cuda::MixStreams(device_->queue(), ToMatrix(x), ToMatrix(weights), streams,
                                         result == ProductResult::kIsAdded, ToMatrix(out)),
                        "MixStreams");
}

absl::Status CudaBackend::GatherRows(Tensor x, int32_t list, Tensor out) {
  RETURN_IF_ERROR(CheckGatherRows(step_index(), x, list, out));
  RETURN_IF_ERROR(device_->Begin());
  if (out.rows == 0 || out.cols == 0) return absl::OkStatus();
  return device_->Check(
      cuda::GatherRows(device_->queue(), ToMatrix(x), placed_.row_list(list), ToMatrix(out)),
      "GatherRows");
}

}  // namespace lm
