// Gives a kernel to the queue's recorder. (By itself, because the kernels' tests
// without a GPU put a function of their own in its place: tests/engine/backend/cuda_on_host.)
#ifndef LM_ENGINE_BACKEND_CUDA_KERNEL_LAUNCH_H_
#define LM_ENGINE_BACKEND_CUDA_KERNEL_LAUNCH_H_

#include "engine/backend/cuda/kernel_queue.h"

namespace lm::cuda {

template <typename T>
struct NotDeduced {
  using Type = T;
};

// kernel<<<grid, block, shared_bytes>>>(arguments...), when the recorder is flushed.
template <typename... Parameters>
cudaError_t LaunchShared(const Queue& queue, void (*kernel)(Parameters...), dim3 grid, dim3 block,
                         int shared_bytes, typename NotDeduced<Parameters>::Type... arguments) {
  static_assert(sizeof...(Parameters) <= kMostArguments);
  void* pointers[] = {&arguments...};
  const size_t sizes[] = {sizeof(Parameters)...};
  return EnqueueKernel(queue, reinterpret_cast<const void*>(kernel), grid, block, shared_bytes, pointers,
                   sizes, sizeof...(Parameters));
}

template <typename... Parameters>
cudaError_t Launch(const Queue& queue, void (*kernel)(Parameters...), dim3 grid, dim3 block,
                   typename NotDeduced<Parameters>::Type... arguments) {
  return LaunchShared(queue, kernel, grid, block, /*shared_bytes=*/0, arguments...);
}

}  // namespace lm::cuda

#endif  // LM_ENGINE_BACKEND_CUDA_KERNEL_LAUNCH_H_
