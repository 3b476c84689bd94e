// Collectives of GPUs that read each other's memory ("peer access"): each copies the others'
// columns by a kernel of its own. So a step stays one graph, of all devices, with edges between
// them before and behind each exchange.
#ifndef LM_ENGINE_BACKEND_CUDA_CUDA_COLLECTIVES_H_
#define LM_ENGINE_BACKEND_CUDA_CUDA_COLLECTIVES_H_

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/backend/cuda/cuda_api.h"
#include "engine/backend/cuda/cuda_backend.h"

namespace lm {

// REQUIRES: `api` outlives the group and its buffers.
absl::StatusOr<CudaGroup> CreateCudaGroup(const CudaApi& api, absl::Span<const int> devices);

}  // namespace lm

#endif  // LM_ENGINE_BACKEND_CUDA_CUDA_COLLECTIVES_H_
