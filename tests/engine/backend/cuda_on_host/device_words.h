// CUDA's language for g++: included before a .cu file, it makes functions of kernels, and Launch
// runs them (run_grid.h). What is used by engine/backend/cuda is here, nothing else.
#ifndef LM_TESTS_ENGINE_BACKEND_CUDA_ON_HOST_DEVICE_WORDS_H_
#define LM_TESTS_ENGINE_BACKEND_CUDA_ON_HOST_DEVICE_WORDS_H_

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "engine/backend/cuda/host_device.cuh"
#include "engine/backend/cuda/kernels.h"
#include "tests/engine/backend/cuda_on_host/run_grid.h"
#include "tests/engine/backend/cuda_on_host/warp_products.h"

#undef __global__
#undef __device__
#undef __shared__
#define __global__
#define __device__
#define __shared__ static  // blocks run one after the other
#define blockIdx (lm::on_host::indices.block)
#define threadIdx (lm::on_host::indices.thread)
#define blockDim (lm::on_host::indices.shape)

// In the place of engine/backend/cuda/kernel_launch.cuh, kernel_order.cuh and warp_matrix.cuh.
#define LM_ENGINE_BACKEND_CUDA_KERNEL_LAUNCH_H_
#define LM_ENGINE_BACKEND_CUDA_KERNEL_ORDER_H_
#define LM_ENGINE_BACKEND_CUDA_WARP_MATRIX_H_
#define __launch_bounds__(...)
#undef __forceinline__
#define __forceinline__ inline

namespace lm::cuda {

template <typename T>
struct NotDeduced {
  using Type = T;
};

// As the product's, which the recorder's address of a kernel is enough for.
template <typename... Parameters>
cudaError_t LaunchShared(const Queue& queue, void (*kernel)(Parameters...), dim3 grid, dim3 block,
                         int shared_bytes, typename NotDeduced<Parameters>::Type... arguments) {
  const void* address = reinterpret_cast<const void*>(kernel);
  on_host::LearnKernel(address, {on_host::KernelCall<Parameters...>::Run, {sizeof(Parameters)...}});
  void* pointers[] = {&arguments...};
  const size_t sizes[] = {sizeof(Parameters)...};
  return EnqueueKernel(queue, address, grid, block, shared_bytes, pointers, sizes,
                       sizeof...(Parameters));
}

template <typename... Parameters>
cudaError_t Launch(const Queue& queue, void (*kernel)(Parameters...), dim3 grid, dim3 block,
                   typename NotDeduced<Parameters>::Type... arguments) {
  return LaunchShared(queue, kernel, grid, block, /*shared_bytes=*/0, arguments...);
}

inline void LetNextKernelBegin() {}
inline void WaitForKernelBefore() { on_host::WaitForKernelBefore(); }
inline void BeginKernel() { WaitForKernelBefore(); }

using on_host::Multiply16;
using on_host::MultiplyInt8;
using on_host::MultiplyInt8Half;

inline float Exp2Approximately(float x) { return std::exp2(x); }
inline uint32_t StoreTwoF16(float first, float second) {
  return StoreF16(first) | uint32_t{StoreF16(second)} << 16;
}
inline void LoadFourCodes(uint32_t codes, uint32_t* first, uint32_t* second) {
  auto code = [codes](int i) { return static_cast<float>(static_cast<int8_t>(codes >> (8 * i))); };
  *first = StoreTwoF16(code(0), code(1));
  *second = StoreTwoF16(code(2), code(3));
}
inline void PrefetchToL2(const void* from) { on_host::Prefetch(from); }
inline char* DynamicShared() { return on_host::DynamicShared(); }
inline void BeginCopy(void* shared, const void* from) { on_host::BeginCopy(shared, from); }
inline void EndCopyGroup() { on_host::EndCopyGroup(); }
template <int kGroups>
void WaitForCopies() {
  on_host::WaitForCopies(kGroups);
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
  return lm::on_host::MaxOfWarp(value);
}
inline int __reduce_add_sync(unsigned, int value) { return lm::on_host::SumOfWarp(value); }

inline uint32_t atomicAdd(uint32_t* to, uint32_t value) {
  return lm::on_host::AtomicAdd(to, value);
}
inline unsigned long long atomicAdd(unsigned long long* to, unsigned long long value) {
  return lm::on_host::AtomicAdd(reinterpret_cast<uint64_t*>(to), value);
}

inline float CountedFma(float x, float y, float z) {
  lm::on_host::NoteFma();
  return std::fma(x, y, z);
}
#define fmaf CountedFma

using std::max;
using std::min;

#endif  // LM_TESTS_ENGINE_BACKEND_CUDA_ON_HOST_DEVICE_WORDS_H_
