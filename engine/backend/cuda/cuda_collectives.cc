#include "engine/backend/cuda/cuda_collectives.h"

#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/backend/cuda/cuda_ops.h"
#include "engine/backend/cuda/device_guard.h"
#include "engine/base/status_macros.h"

namespace lm {
namespace {

class CudaCollectives final : public Collectives {
 public:
  CudaCollectives(std::shared_ptr<LaunchRecorder> recorder, std::vector<CudaDevice*> devices)
      : recorder_(std::move(recorder)), devices_(std::move(devices)) {}

  absl::Status Join() override {
    for (const CudaDevice* device : devices_) RETURN_IF_ERROR(device->Begin());
    recorder_->Join();
    return absl::OkStatus();
  }

  absl::Status AllGather(absl::Span<const Tensor> matrices,
                         absl::Span<const int64_t> first_cols) override {
    for (size_t to = 0; to < devices_.size(); ++to) {
      for (size_t from = 0; from < devices_.size(); ++from) {
        const int64_t first = first_cols[from], cols = first_cols[from + 1] - first;
        if (from == to || cols == 0) continue;
        RETURN_IF_ERROR(devices_[to]->Check(
            cuda::CopyMatrix(devices_[to]->queue(), ToMatrix(matrices[from].Cols(first, cols)),
                             ToMatrix(matrices[to].Cols(first, cols))),
            "AllGather"));
      }
    }
    return absl::OkStatus();
  }

 private:
  const std::shared_ptr<LaunchRecorder> recorder_;
  const std::vector<CudaDevice*> devices_;
};

// Those of one kind round alike: what each does for itself must come out the same.
absl::Status CheckAlike(const CudaDevice& a, const CudaDevice& b) {
  const CudaDeviceInfo &of_a = a.info(), &of_b = b.info();
  const bool alike = of_a.name == of_b.name && of_a.compute_major == of_b.compute_major &&
                     of_a.compute_minor == of_b.compute_minor;
  if (alike) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("GPUs that compute together must be alike, but ", a.name(), " is ", of_a.name,
                   " (compute ", of_a.compute_major, ".", of_a.compute_minor, ") and ", b.name(),
                   " ", of_b.name, " (", of_b.compute_major, ".", of_b.compute_minor,
                   "); with ',' instead of '+' they share the layers"));
}

// Lets `device` read the memory of `peer`.
absl::Status EnablePeerAccess(const CudaApi& api, CudaDevice* device, const CudaDevice& peer) {
  if (device->index() == peer.index()) return absl::OkStatus();
  constexpr absl::string_view kOp = "peer access";
  int can = 0;
  RETURN_IF_ERROR(device->Check(api.DeviceCanAccessPeer(&can, device->index(), peer.index()), kOp));
  if (can == 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        device->name(), " cannot read the memory of ", peer.name(),
        " (no peer access), which devices that compute together must; with ',' instead of '+' they "
        "share the layers"));
  }
  const DeviceGuard guard(api, device->index());
  RETURN_IF_ERROR(device->Check(guard.error(), kOp));
  const cudaError_t error = api.DeviceEnablePeerAccess(peer.index());
  if (error != cudaErrorPeerAccessAlreadyEnabled) return device->Check(error, kOp);
  api.GetLastError();  // which is forgotten so
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CudaGroup> CreateCudaGroup(const CudaApi& api, absl::Span<const int> devices) {
  const auto recorder = std::make_shared<LaunchRecorder>(api);
  CudaGroup group;
  std::vector<CudaDevice*> opened;
  for (const int device : devices) {
    ASSIGN_OR_RETURN(std::unique_ptr<Backend> member, CudaBackend::Create(api, device, recorder));
    opened.push_back(&static_cast<CudaBackend*>(member.get())->device());
    group.members.push_back(std::move(member));
  }
  for (CudaDevice* device : opened) {
    RETURN_IF_ERROR(CheckAlike(*opened[0], *device));
    for (const CudaDevice* peer : opened) {
      RETURN_IF_ERROR(EnablePeerAccess(api, device, *peer));
    }
  }
  group.collectives = std::make_unique<CudaCollectives>(recorder, std::move(opened));
  return group;
}

}  // namespace lm
