#include "engine/backend/cuda/device_list.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "engine/base/status_macros.h"
#include "engine/base/this_process.h"

namespace lm {
namespace {

// What kernels are compiled for, as CMAKE_CUDA_ARCHITECTURES has it: 90-real, 90-virtual, or 90 for
// both; 90a is for that one only.
struct Architecture {
  int number = 0;         // 90 for 9.0
  bool only = false;      // runs on no other
  bool has_code = false;  // of the GPU
  bool has_ptx = false;   // which newer GPUs translate
};

// Those that are numbers; "native" and the like are none.
std::vector<Architecture> Architectures() {
  std::vector<Architecture> all;
  for (absl::string_view text : absl::StrSplit(LM_CUDA_ARCHITECTURES, ' ', absl::SkipEmpty())) {
    Architecture one;
    one.has_code = !absl::ConsumeSuffix(&text, "-virtual");
    one.has_ptx = !absl::ConsumeSuffix(&text, "-real");
    one.only = absl::ConsumeSuffix(&text, "a") || absl::ConsumeSuffix(&text, "f");
    if (absl::SimpleAtoi(text, &one.number)) all.push_back(one);
  }
  return all;
}

bool RunsOn(const Architecture& architecture, int major, int minor) {
  const int number = 10 * major + minor;
  if (architecture.only) return number == architecture.number;
  return (architecture.has_ptx && architecture.number <= number) ||
         (architecture.has_code && architecture.number / 10 == major &&
          architecture.number <= number);
}

// Errors that CUDA 12.0 to 12.7 have no name for.
constexpr int kErrorContained = 226;         // cudaErrorContained
constexpr int kErrorTensorMemoryLeak = 721;  // cudaErrorTensorMemoryLeak

// Errors after which CUDA's manual has the process end (driver_types.h: "the process must be
// terminated and relaunched").
bool EndsCuda(cudaError_t error) {
  switch (static_cast<int>(error)) {
    case kErrorContained:
    case kErrorTensorMemoryLeak:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorMpsClientTerminated:
    case cudaErrorExternalDevice:
      return true;
    default:
      return false;
  }
}

CudaDeviceInfo Describe(const CudaApi& api, int index) {
  CudaDeviceInfo info;
  cudaDeviceProp properties = {};
  cudaError_t error = api.GetDeviceProperties(&properties, index);
  if (error != cudaSuccess) {
    api.GetLastError();
    info.unusable = CudaErrorText(error);
    return info;
  }
  info.name = properties.name;
  info.memory_bytes = static_cast<int64_t>(properties.totalGlobalMem);
  info.multiprocessor_bytes = static_cast<int64_t>(properties.sharedMemPerMultiprocessor);
  info.compute_major = properties.major;
  info.compute_minor = properties.minor;
  const std::vector<Architecture> all = Architectures();
  const bool runs = std::any_of(all.begin(), all.end(), [&](const Architecture& one) {
    return RunsOn(one, properties.major, properties.minor);
  });
  if (!runs && !all.empty()) {
    info.unusable =
        absl::StrCat("its compute capability is ", properties.major, ".", properties.minor,
                     "; this build's kernels are for ", CudaArchitectures());
  }
  return info;
}

// The process that CUDA has begun in: it works in none that is forked from it. 0: nowhere.
constinit std::atomic<uint64_t> cuda_process{0};

absl::Status CheckNotForked() {
  const uint64_t owner = cuda_process.load();
  if (owner == 0 || owner == ThisProcess()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "no CUDA device: this process was forked from one that had looked for GPUs, after which CUDA "
      "works in that one only: open the database after fork, in a child of a process that has "
      "looked for none (or that exec has started: spawn)");
}

// CUDA has one error for both.
std::string WhyNoDriver() {
  if (!FindsCudaDriver()) return "; the NVIDIA driver's library, libcuda.so.1, is not to be found";
  return absl::StrCat("; the NVIDIA driver is older than this build's CUDA runtime ",
                      CUDART_VERSION / 1000, ".", CUDART_VERSION % 1000 / 10);
}

}  // namespace

bool FindsCudaDriver() {
  void* const driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (driver != nullptr) dlclose(driver);
  return driver != nullptr;
}

absl::StatusOr<std::vector<CudaDeviceInfo>> ListCudaDevices() {
  return ListCudaDevices(RuntimeApi());
}

absl::StatusOr<std::vector<CudaDeviceInfo>> ListCudaDevices(const CudaApi& api) {
  RETURN_IF_ERROR(CheckNotForked());
  int count = 0;
  cudaError_t error = api.GetDeviceCount(&count);
  if (error != cudaSuccess) {
    api.GetLastError();
    return absl::FailedPreconditionError(
        absl::StrCat("no CUDA device: ", CudaErrorText(error),
                     error == cudaErrorInsufficientDriver ? WhyNoDriver() : ""));
  }
  uint64_t nobody = 0;
  cuda_process.compare_exchange_strong(nobody, ThisProcess());
  if (count == 0) return absl::FailedPreconditionError("no CUDA device: the driver sees no GPU");
  std::vector<CudaDeviceInfo> devices;
  for (int i = 0; i < count; ++i) devices.push_back(Describe(api, i));
  return devices;
}

absl::StatusOr<CudaDeviceInfo> FindCudaDevice(const CudaApi& api, int index) {
  ASSIGN_OR_RETURN(std::vector<CudaDeviceInfo> devices, ListCudaDevices(api));
  if (index < 0 || index >= static_cast<int>(devices.size())) {
    return absl::FailedPreconditionError(
        absl::StrCat("no CUDA device ", index, ": there are ", devices.size(), ", from 0"));
  }
  const CudaDeviceInfo& info = devices[index];
  if (info.unusable.empty()) return info;
  return absl::FailedPreconditionError(
      absl::StrCat("CUDA device ", index, " (", info.name, ") cannot be used: ", info.unusable));
}

std::string CudaErrorText(cudaError_t error) {
  return absl::StrCat(
      cudaGetErrorString(error), " (CUDA error ", static_cast<int>(error), ")",
      EndsCuda(error) ? "; after it CUDA works in a new process only: start this one anew" : "");
}

std::string CudaArchitectures() {
  std::string text;
  for (const Architecture& one : Architectures()) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", one.number / 10, ".", one.number % 10,
                    one.has_ptx && !one.only ? " and newer" : "");
  }
  return text.empty() ? LM_CUDA_ARCHITECTURES : text;
}

}  // namespace lm
