// CUDA's language for g++: included before a .cu file, it makes functions of kernels, and Launch
// runs them (run_grid.h). What is used by engine/backend/cuda is here, nothing else.
#ifndef LM_TESTS_ENGINE_BACKEND_CUDA_ON_HOST_DEVICE_WORDS_H_
#define LM_TESTS_ENGINE_BACKEND_CUDA_ON_HOST_DEVICE_WORDS_H_

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "engine/backend/cuda/kernels.h"
#include "tests/engine/backend/cuda_on_host/run_grid.h"

#undef __global__
#undef __device__
#undef __shared__
#define __global__
#define __device__
#define __shared__ static  // blocks run one after the other
#define blockIdx (lm::on_host::BlockIndex())
#define threadIdx (lm::on_host::ThreadIndex())

// In the place of engine/backend/cuda/kernel_launch.cuh.
#define LM_ENGINE_BACKEND_CUDA_KERNEL_LAUNCH_H_

namespace lm::cuda {

template <typename T>
struct NotDeduced {
  using Type = T;
};

template <typename... Parameters>
cudaError_t Launch(const Queue& queue, void (*kernel)(Parameters...), dim3 grid, dim3 block,
                   typename NotDeduced<Parameters>::Type... arguments) {
  on_host::RunGrid(grid, block, [&] { kernel(arguments...); });
  return queue.api->LaunchKernel(nullptr, grid, block, nullptr, 0, queue.stream);
}

}  // namespace lm::cuda

inline void __syncthreads() { lm::on_host::WaitForBlock(); }
inline void __syncwarp() { lm::on_host::WaitForWarp(); }

inline float __shfl_xor_sync(unsigned, float value, int lanes) {
  return lm::on_host::FromLane<float>(value, lm::on_host::Lane() ^ lanes);
}

inline uint32_t __reduce_max_sync(unsigned, uint32_t value) {
  uint32_t result = 0;
  for (int i = 0; i < 32; ++i) {
    result = std::max(result, lm::on_host::FromLane<uint32_t>(value, i));
  }
  return result;
}

inline int __reduce_add_sync(unsigned, int value) {
  int result = 0;
  for (int i = 0; i < 32; ++i) result += lm::on_host::FromLane<int>(value, i);
  return result;
}

inline void atomicMax(uint32_t* to, uint32_t value) { *to = std::max(*to, value); }

using std::max;
using std::min;

#endif  // LM_TESTS_ENGINE_BACKEND_CUDA_ON_HOST_DEVICE_WORDS_H_
