// What a build without CUDA has in place of the backend: errors that say so.
#include "engine/backend/cuda/cuda_backend.h"

namespace lm {

absl::StatusOr<std::unique_ptr<Backend>> CreateCudaBackend(int /*device*/) {
  return absl::FailedPreconditionError("this build has no CUDA backend");
}

absl::StatusOr<CudaGroup> CreateCudaGroup(absl::Span<const int> /*devices*/) {
  return absl::FailedPreconditionError("this build has no CUDA backend");
}

absl::StatusOr<std::vector<CudaDeviceInfo>> ListCudaDevices() {
  return absl::FailedPreconditionError("this build has no CUDA backend");
}

bool FindsCudaDriver() { return false; }

}  // namespace lm
