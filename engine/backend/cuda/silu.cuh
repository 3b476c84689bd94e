#ifndef LM_ENGINE_BACKEND_CUDA_SILU_H_
#define LM_ENGINE_BACKEND_CUDA_SILU_H_

#include "engine/backend/cuda/host_device.cuh"

namespace lm::cuda {

// silu(gate) * up. (The device's expf is within one unit of the last place.)
LM_HOST_DEVICE float SiluTimes(float gate, float up) { return gate / (1.0f + expf(-gate)) * up; }

}  // namespace lm::cuda

#endif  // LM_ENGINE_BACKEND_CUDA_SILU_H_
