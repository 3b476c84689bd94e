// CUDA's language for g++: included before a .cu file, it makes functions of kernels, and Launch
// runs them (run_grid.h). What is used by engine/backend/cuda is here, nothing else.
#ifndef LM_TESTS_ENGINE_BACKEND_CUDA_ON_HOST_DEVICE_WORDS_H_
#define LM_TESTS_ENGINE_BACKEND_CUDA_ON_HOST_DEVICE_WORDS_H_

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "engine/backend/cuda/kernels.h"
#include "tests/engine/backend/cuda_on_host/run_grid.h"
#include "tests/engine/backend/cuda_on_host/warp_products.h"

#undef __global__
#undef __device__
#undef __shared__
#define __global__
#define __device__
#define __shared__ static  // blocks run one after the other
#define blockIdx (lm::on_host::BlockIndex())
#define threadIdx (lm::on_host::ThreadIndex())
#define blockDim (lm::on_host::BlockShape())

// In the place of engine/backend/cuda/kernel_launch.cuh and warp_matrix.cuh.
#define LM_ENGINE_BACKEND_CUDA_KERNEL_LAUNCH_H_
#define LM_ENGINE_BACKEND_CUDA_WARP_MATRIX_H_
#define __launch_bounds__(...)
#undef __forceinline__
#define __forceinline__ inline

namespace lm::cuda {

template <typename T>
struct NotDeduced {
  using Type = T;
};

template <typename... Parameters>
cudaError_t LaunchShared(const Queue& queue, void (*kernel)(Parameters...), dim3 grid, dim3 block,
                         int shared_bytes, typename NotDeduced<Parameters>::Type... arguments) {
  on_host::RunGrid(grid, block, shared_bytes, [&] { kernel(arguments...); });
  return queue.api->LaunchKernel(nullptr, grid, block, nullptr, shared_bytes, nullptr);
}

template <typename... Parameters>
cudaError_t Launch(const Queue& queue, void (*kernel)(Parameters...), dim3 grid, dim3 block,
                   typename NotDeduced<Parameters>::Type... arguments) {
  return LaunchShared(queue, kernel, grid, block, /*shared_bytes=*/0, arguments...);
}

using on_host::Multiply16;
using on_host::MultiplyInt8;
using on_host::MultiplyInt8Half;

inline char* DynamicShared() { return on_host::DynamicShared(); }
inline void BeginCopy(void* shared, const void* from) { on_host::BeginCopy(shared, from); }
inline void EndCopyGroup() { on_host::EndCopyGroup(); }
template <int kGroups>
void WaitForCopies() {
  on_host::WaitForCopies(kGroups);
}
template <typename T>
T LoadOnce(const T* from) {
  return *from;
}

inline uint32_t ChooseBytes(uint32_t low, uint32_t high, uint32_t chosen) {
  const uint64_t bytes = uint64_t{high} << 32 | low;
  uint32_t result = 0;
  for (int i = 0; i < 4; ++i) {
    result |= static_cast<uint32_t>(bytes >> (8 * (chosen >> (4 * i) & 7)) & 255u) << (8 * i);
  }
  return result;
}

}  // namespace lm::cuda

inline void __syncthreads() { lm::on_host::WaitForBlock(); }
inline void __syncwarp() { lm::on_host::WaitForWarp(); }

template <typename T>
T __shfl_xor_sync(unsigned, T value, int lanes) {
  return lm::on_host::FromLane<T>(value, lm::on_host::Lane() ^ lanes);
}

inline uint32_t __reduce_max_sync(unsigned, uint32_t value) {
  lm::on_host::Show(&value, 1);
  uint32_t result = 0;
  for (int i = 0; i < 32; ++i) result = std::max(result, *lm::on_host::ShownBy(i));
  lm::on_host::WaitForWarp();
  return result;
}

inline int __reduce_add_sync(unsigned, int value) {
  const auto word = static_cast<uint32_t>(value);
  lm::on_host::Show(&word, 1);
  int result = 0;
  for (int i = 0; i < 32; ++i) result += static_cast<int>(*lm::on_host::ShownBy(i));
  lm::on_host::WaitForWarp();
  return result;
}

inline void atomicMax(uint32_t* to, uint32_t value) { *to = std::max(*to, value); }

using std::max;
using std::min;

#endif  // LM_TESTS_ENGINE_BACKEND_CUDA_ON_HOST_DEVICE_WORDS_H_
