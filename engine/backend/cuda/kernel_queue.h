// What the kernels' files know of the queues that their kernels are put into: launch_recorder.h has
// the rest, which each of them would be compiled with three times.
#ifndef LM_ENGINE_BACKEND_CUDA_KERNEL_QUEUE_H_
#define LM_ENGINE_BACKEND_CUDA_KERNEL_QUEUE_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace lm {
class LaunchRecorder;
}  // namespace lm

namespace lm::cuda {

// One of a recorder's.
struct Queue {
  LaunchRecorder* recorder = nullptr;
  int number = 0;
  // Shared memory of a multiprocessor of its device, for all blocks that are there at once; 0: not
  // known.
  int64_t multiprocessor_bytes = 0;
};

inline constexpr int kMostArguments = 16;  // of a kernel

// kernel<<<grid, block, shared_bytes>>>(arguments...), when the recorder is flushed. Arguments are
// copied: `count` of them, of these sizes.
cudaError_t EnqueueKernel(const Queue& queue, const void* kernel, dim3 grid, dim3 block,
                          int shared_bytes, void** arguments, const size_t* sizes, int count);

}  // namespace lm::cuda

#endif  // LM_ENGINE_BACKEND_CUDA_KERNEL_QUEUE_H_
