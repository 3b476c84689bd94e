// The backends of this build, by name.
#ifndef LM_ENGINE_BACKEND_REGISTRY_H_
#define LM_ENGINE_BACKEND_REGISTRY_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/backend/backend.h"
#include "engine/base/cpu_features.h"

namespace lm {

struct BackendOptions {
  std::string device = "cpu";  // "cpu", "reference", "cuda" or "cuda:<n>"
  int threads = 0;             // CPU threads; 0: as many as this process may use
  Isa isa = BestIsa();         // "cpu" only
  // "cuda" only: nothing depends on T, at the price of a slower prefill (cuda/cuda_backend.h).
  bool exact_products = false;
};

// InvalidArgument for a name that is none of these; FailedPrecondition, saying why, where the
// device is not to be had (built without CUDA, no driver, no GPU).
absl::StatusOr<std::unique_ptr<Backend>> CreateBackend(const BackendOptions& options);

// All that can be created here, "cpu" once an instruction set; the backend tests run over these.
std::vector<BackendOptions> AvailableBackends();

}  // namespace lm

#endif  // LM_ENGINE_BACKEND_REGISTRY_H_
