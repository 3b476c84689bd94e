#include "engine/backend/registry.h"

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "engine/backend/cpu/cpu_backend.h"
#include "engine/backend/cpu/panel_matrix.h"
#include "engine/backend/cuda/cuda_backend.h"
#include "engine/backend/reference/reference_backend.h"
#include "engine/base/exit_guard.h"

namespace lm {

absl::StatusOr<std::unique_ptr<Backend>> CreateBackend(const BackendOptions& options) {
  if (options.device == "reference") return CreateReferenceBackend();
  if (options.device == "cpu") return CreateCpuBackend(options.isa, options.threads);
  if (options.device == "cuda") return CreateCudaBackend(0);
  absl::string_view rest = options.device;
  int device = 0;
  if (absl::ConsumePrefix(&rest, "cuda:") && !rest.empty() && absl::ascii_isdigit(rest[0]) &&
      absl::SimpleAtoi(rest, &device)) {
    return CreateCudaBackend(device);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("a device must be \"cpu\", \"reference\", \"cuda\" or \"cuda:<n>\", got \"",
                   absl::CHexEscape(options.device), "\""));
}

std::vector<DeviceInfo> ListDevices() {
  const ExitGuard guard;  // CUDA's driver has exit handlers
  if (!guard.allowed()) return {};
  std::vector<DeviceInfo> devices = {{.device = "cpu",
                                      .name = CpuName(),
                                      .features = std::string(IsaName(BestIsa())),
                                      .memory_bytes = PhysicalMemoryBytes(),
                                      .threads = DefaultThreads()}};
  absl::StatusOr<std::vector<CudaDeviceInfo>> gpus = ListCudaDevices();
  if (!gpus.ok()) {
    devices.push_back({.device = "cuda", .unusable = std::string(gpus.status().message())});
    return devices;
  }
  for (size_t i = 0; i < gpus->size(); ++i) {
    const CudaDeviceInfo& gpu = (*gpus)[i];
    devices.push_back(
        {.device = absl::StrCat("cuda:", i),
         .name = gpu.name,
         .features = absl::StrCat("compute ", gpu.compute_major, ".", gpu.compute_minor),
         .memory_bytes = gpu.memory_bytes,
         .unusable = gpu.unusable});
  }
  return devices;
}

std::vector<BackendOptions> AvailableBackends() {
  const ExitGuard guard;
  if (!guard.allowed()) return {};
  std::vector<BackendOptions> all = {{.device = "reference"}};
  for (Isa isa : AvailableIsas()) all.push_back({.device = "cpu", .isa = isa});
  BackendOptions cuda = {.device = "cuda:0"};
  if (CreateBackend(cuda).ok()) all.push_back(cuda);
  return all;
}

int64_t CpuMatrixBytes(DType dtype, int64_t rows, int64_t cols) {
  return PanelMatrix::PackedBytes(dtype, rows, cols);
}

}  // namespace lm
