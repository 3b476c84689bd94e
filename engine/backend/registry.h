// The backends of this build, by name.
#ifndef LM_ENGINE_BACKEND_REGISTRY_H_
#define LM_ENGINE_BACKEND_REGISTRY_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/backend/backend.h"
#include "engine/base/cpu_features.h"

namespace lm {

struct BackendOptions {
  std::string device =
      "cpu";            // "cpu", "reference", "cuda", "cuda:<n>", or several of a kind, "a+b"
  int threads = 0;      // CPU threads; 0: as many as this process may use
  Isa isa = BestIsa();  // "cpu" only
  // Of several devices: matrices of fewer bytes each has whole.
  int64_t least_split_bytes = 256 * 1024;
};

// The number of a GPU, of "cuda:<n>" or of "cuda", which is 0; none where the name is not one's.
std::optional<int> CudaNumber(absl::string_view device);

// Whether several devices, "a+b", can compute layers together: InvalidArgument where they are not
// of a kind. One alone always can.
absl::Status CheckOfAKind(absl::string_view devices);

// InvalidArgument for a name that is none of these, and for an LM_CPU that is none (CheckNamedIsa)
// where the device is "cpu"; FailedPrecondition, saying why, where the device is not to be had
// (built without CUDA, no driver, no GPU).
absl::StatusOr<std::unique_ptr<Backend>> CreateBackend(const BackendOptions& options);

// A device as lm_devices shows it, whether or not models can run on it.
struct DeviceInfo {
  std::string device = {};    // "cpu", "cuda:0"; "cuda" where no GPU can be looked at
  std::string name = {};      // "NVIDIA H200"; empty: not known
  std::string features = {};  // "avx512_vnni", "compute 9.0"
  int64_t memory_bytes = 0;
  int threads = 0;            // of a CPU, as many as this process may use
  std::string unusable = {};  // why, or empty
};

// The CPU, then what is known of GPUs. Looks for them at each call. (Nothing once exit() has
// begun.)
std::vector<DeviceInfo> ListDevices();

// Whether there is something of an NVIDIA GPU, its driver's library or the device that this makes,
// whether or not this build can use it. (False once exit() has begun.)
bool HasNvidiaDriver();

// What a matrix of weights takes in the memory of "cpu". REQUIRES: the type is one of weights.
int64_t CpuMatrixBytes(DType dtype, int64_t rows, int64_t cols);

// All that can be created here, "cpu" once an instruction set; the backend tests run over these.
std::vector<BackendOptions> AvailableBackends();

}  // namespace lm

#endif  // LM_ENGINE_BACKEND_REGISTRY_H_
