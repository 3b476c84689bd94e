#include "engine/backend/registry.h"

#include <unistd.h>

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "engine/backend/cpu/cpu_backend.h"
#include "engine/backend/cpu/panel_matrix.h"
#include "engine/backend/cuda/cuda_backend.h"
#include "engine/backend/reference/reference_backend.h"
#include "engine/backend/tensor_parallel/host_collectives.h"
#include "engine/backend/tensor_parallel/tensor_parallel_backend.h"
#include "engine/base/exit_guard.h"
#include "engine/base/status_macros.h"

namespace lm {

std::optional<int> CudaNumber(absl::string_view device) {
  int number = 0;
  if (!absl::ConsumePrefix(&device, "cuda")) return std::nullopt;
  if (device.empty()) return 0;
  if (!absl::ConsumePrefix(&device, ":") || device.empty() || !absl::ascii_isdigit(device[0]) ||
      !absl::SimpleAtoi(device, &number)) {
    return std::nullopt;
  }
  return number;
}

absl::Status CheckOfAKind(absl::string_view devices) {
  const std::vector<absl::string_view> all = absl::StrSplit(devices, '+');
  auto kind = [](absl::string_view device) { return device.substr(0, device.find(':')); };
  for (absl::string_view device : all) {
    if (kind(device) == kind(all[0])) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "devices that compute layers together must be of a kind, got '", absl::CHexEscape(all[0]),
        "' and '", absl::CHexEscape(device), "' (with ',' instead of '+' they share the layers)"));
  }
  return absl::OkStatus();
}

namespace {

// Several devices of a kind as one.
absl::StatusOr<std::unique_ptr<Backend>> CreateTensorParallel(const BackendOptions& options) {
  RETURN_IF_ERROR(CheckOfAKind(options.device));
  std::vector<std::unique_ptr<Backend>> members;
  std::vector<int> gpus;
  for (absl::string_view device : absl::StrSplit(options.device, '+')) {
    if (const std::optional<int> gpu = CudaNumber(device)) {
      gpus.push_back(*gpu);
      continue;
    }
    BackendOptions own = options;
    own.device = std::string(device);
    ASSIGN_OR_RETURN(std::unique_ptr<Backend> member, CreateBackend(own));
    members.push_back(std::move(member));
  }
  std::unique_ptr<Collectives> collectives;
  if (gpus.empty()) {
    collectives = CreateHostCollectives();
  } else {
    ASSIGN_OR_RETURN(CudaGroup group, CreateCudaGroup(gpus));
    members = std::move(group.members);
    collectives = std::move(group.collectives);
  }
  return std::make_unique<TensorParallelBackend>(std::move(members), std::move(collectives),
                                                 options.least_split_bytes);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> CreateBackend(const BackendOptions& options) {
  if (absl::StrContains(options.device, '+')) return CreateTensorParallel(options);
  if (options.device == "reference") return CreateReferenceBackend();
  if (options.device == "cpu") {
    RETURN_IF_ERROR(CheckNamedIsa());
    return CreateCpuBackend(options.isa, options.threads);
  }
  if (const std::optional<int> gpu = CudaNumber(options.device)) return CreateCudaBackend(*gpu);
  return absl::InvalidArgumentError(
      absl::StrCat("a device must be \"cpu\", \"reference\", \"cuda\" or \"cuda:<n>\", or some of "
                   "a kind, \"cuda:0+cuda:1\", got \"",
                   absl::CHexEscape(options.device), "\""));
}

std::vector<DeviceInfo> ListDevices() {
  const ExitGuard guard;  // CUDA's driver has exit handlers
  if (!guard.allowed()) return {};
  std::vector<DeviceInfo> devices = {{.device = "cpu",
                                      .name = CpuName(),
                                      .features = std::string(IsaName(BestIsa())),
                                      .memory_bytes = AvailableMemoryBytes(),
                                      .threads = DefaultThreads(),
                                      .unusable = std::string(CheckNamedIsa().message())}};
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

bool HasNvidiaDriver() {
  const ExitGuard guard;
  return guard.allowed() && (access("/dev/nvidiactl", F_OK) == 0 || FindsCudaDriver());
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
