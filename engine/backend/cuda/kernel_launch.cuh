// Gives a kernel to the queue's recorder. (By itself, because the kernels' tests
// without a GPU put a function of their own in its place: tests/engine/backend/cuda_on_host.)
#ifndef LM_ENGINE_BACKEND_CUDA_KERNEL_LAUNCH_H_
#define LM_ENGINE_BACKEND_CUDA_KERNEL_LAUNCH_H_

#include <algorithm>

#include "engine/backend/cuda/kernels.h"
#include "engine/backend/cuda/launch_recorder.h"

namespace lm::cuda {

template <typename T>
struct NotDeduced {
  using Type = T;
};

// kernel<<<grid, block, shared_bytes>>>(arguments...), when the recorder is flushed.
template <typename... Parameters>
cudaError_t LaunchShared(const Queue& queue, void (*kernel)(Parameters...), dim3 grid, dim3 block,
                         int shared_bytes, typename NotDeduced<Parameters>::Type... arguments) {
  static_assert(sizeof...(Parameters) <= LaunchRecorder::kMostArguments);
  void* pointers[] = {&arguments...};
  const size_t sizes[] = {sizeof(Parameters)...};
  const void* function = reinterpret_cast<const void*>(kernel);
  // What is asked for holds for all of a device's queues, and replaces what was asked before: it is
  // always the same, so that no launch of a kernel takes from another one that waits.
  constexpr int kWithoutAsking = 48 << 10, kMost = 99 << 10;
  if (shared_bytes > kWithoutAsking) {
    const cudaError_t error =
        queue.recorder->AllowSharedBytes(queue.number, function, std::max(shared_bytes, kMost));
    if (error != cudaSuccess) return error;
  }
  queue.recorder->Add(queue.number, function, grid, block, shared_bytes, pointers, sizes,
                      sizeof...(Parameters));
  return cudaSuccess;
}

template <typename... Parameters>
cudaError_t Launch(const Queue& queue, void (*kernel)(Parameters...), dim3 grid, dim3 block,
                   typename NotDeduced<Parameters>::Type... arguments) {
  return LaunchShared(queue, kernel, grid, block, /*shared_bytes=*/0, arguments...);
}

}  // namespace lm::cuda

#endif  // LM_ENGINE_BACKEND_CUDA_KERNEL_LAUNCH_H_
