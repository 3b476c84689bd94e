// Launches a kernel through the table of runtime calls. (By itself, because the kernels' tests
// without a GPU put a function of their own in its place: tests/engine/backend/cuda_on_host.)
#ifndef LM_ENGINE_BACKEND_CUDA_KERNEL_LAUNCH_H_
#define LM_ENGINE_BACKEND_CUDA_KERNEL_LAUNCH_H_

#include "engine/backend/cuda/kernels.h"

namespace lm::cuda {

template <typename T>
struct NotDeduced {
  using Type = T;
};

// kernel<<<grid, block>>>(arguments...)
template <typename... Parameters>
cudaError_t Launch(const Queue& queue, void (*kernel)(Parameters...), dim3 grid, dim3 block,
                   typename NotDeduced<Parameters>::Type... arguments) {
  void* pointers[] = {&arguments...};
  return queue.api->LaunchKernel(reinterpret_cast<const void*>(kernel), grid, block, pointers,
                                 /*shared_bytes=*/0, queue.stream);
}

}  // namespace lm::cuda

#endif  // LM_ENGINE_BACKEND_CUDA_KERNEL_LAUNCH_H_
