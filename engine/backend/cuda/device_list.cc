#include "engine/backend/cuda/device_list.h"

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"

namespace lm {
namespace {

// What the kernels are compiled for at least (CMakeLists.txt).
constexpr int kOldestMajor = 8;

std::string ErrorText(cudaError_t error) {
  return absl::StrCat(cudaGetErrorString(error), " (CUDA error ", static_cast<int>(error), ")");
}

CudaDeviceInfo Describe(const CudaApi& api, int index) {
  CudaDeviceInfo info;
  cudaDeviceProp properties = {};
  cudaError_t error = api.GetDeviceProperties(&properties, index);
  if (error != cudaSuccess) {
    api.GetLastError();
    info.unusable = ErrorText(error);
    return info;
  }
  info.name = properties.name;
  info.memory_bytes = static_cast<int64_t>(properties.totalGlobalMem);
  info.compute_major = properties.major;
  info.compute_minor = properties.minor;
  if (properties.major < kOldestMajor) {
    info.unusable = absl::StrCat("its compute capability is ", properties.major, ".",
                                 properties.minor, "; ", kOldestMajor, ".0 or newer is needed");
  }
  return info;
}

}  // namespace

absl::StatusOr<std::vector<CudaDeviceInfo>> ListCudaDevices() {
  return ListCudaDevices(RuntimeApi());
}

absl::StatusOr<std::vector<CudaDeviceInfo>> ListCudaDevices(const CudaApi& api) {
  int count = 0;
  cudaError_t error = api.GetDeviceCount(&count);
  if (error != cudaSuccess) {
    api.GetLastError();
    absl::string_view hint;
    if (error == cudaErrorInsufficientDriver) {
      hint = "; the NVIDIA driver is missing, or older than this build's CUDA runtime ";
    }
    return absl::FailedPreconditionError(absl::StrCat(
        "no CUDA device: ", ErrorText(error), hint,
        hint.empty() ? "" : absl::StrCat(CUDART_VERSION / 1000, ".", CUDART_VERSION % 1000 / 10)));
  }
  if (count == 0) return absl::FailedPreconditionError("no CUDA device: the driver sees no GPU");
  std::vector<CudaDeviceInfo> devices;
  for (int i = 0; i < count; ++i) devices.push_back(Describe(api, i));
  return devices;
}

absl::Status CheckCudaDevice(const CudaApi& api, int index) {
  ASSIGN_OR_RETURN(std::vector<CudaDeviceInfo> devices, ListCudaDevices(api));
  if (index < 0 || index >= static_cast<int>(devices.size())) {
    return absl::FailedPreconditionError(
        absl::StrCat("no CUDA device ", index, ": there are ", devices.size(), ", from 0"));
  }
  const CudaDeviceInfo& info = devices[index];
  if (info.unusable.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("CUDA device ", index, " (", info.name, ") cannot be used: ", info.unusable));
}

}  // namespace lm
