// Which GPUs there are, and which of them this build can use.
#ifndef LM_ENGINE_BACKEND_CUDA_DEVICE_LIST_H_
#define LM_ENGINE_BACKEND_CUDA_DEVICE_LIST_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/backend/cuda/cuda_api.h"
#include "engine/backend/cuda/cuda_backend.h"

namespace lm {

absl::StatusOr<std::vector<CudaDeviceInfo>> ListCudaDevices(const CudaApi& api);

// FailedPrecondition, saying why, where GPU number `index` is not there or not usable.
absl::StatusOr<CudaDeviceInfo> FindCudaDevice(const CudaApi& api, int index);

// What it is, for messages, and whether only a new process helps.
std::string CudaErrorText(cudaError_t error);

// What the kernels are compiled for, for messages: "compute capability 8.0, 9.0 or newer".
std::string CudaArchitectures();

}  // namespace lm

#endif  // LM_ENGINE_BACKEND_CUDA_DEVICE_LIST_H_
