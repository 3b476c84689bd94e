// In which order a queue's kernels read and write: one after the other, but that the next one's
// thread blocks may take their places, and ask for weights, while the one before is at work
// ("programmatic dependent launch", compute capability 9.0 and newer; launch_recorder.h says where).
// The environment variable LM_CUDA_SERIAL, set to anything, has each begin when the one before has
// ended, and each step when the one before has been read (engine/runtime/engine_queue.cc); set to
// "steps", steps alone. For tests and comparisons.
//
// Every kernel waits for the one before, mostly at once (BeginKernel). Before it has waited it writes
// nothing, and reads nothing that a kernel of the same graph writes: only weights, and what the host
// has put into the queue before the graph, whose first kernel waits for all of that. A kernel that
// has waited finds all that was written before it, because the one before has waited, too.
//
// Small kernels let the next one begin at once. Products do not, so that it begins when they have
// ended: blocks that take their places while they are at work cost more than they save (measured on
// an H200: tests/benchmarks/gpu.md).
//
// (tests/engine/backend/cuda_on_host has its own of all these, which complain of who does not.)
#ifndef LM_ENGINE_BACKEND_CUDA_KERNEL_ORDER_H_
#define LM_ENGINE_BACKEND_CUDA_KERNEL_ORDER_H_

namespace lm::cuda {

// The next kernel begins when all thread blocks of this one have called this, or have ended.
__device__ __forceinline__ void LetNextKernelBegin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Once more costs nothing.
__device__ __forceinline__ void WaitForKernelBefore() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

__device__ __forceinline__ void BeginKernel() {
  LetNextKernelBegin();
  WaitForKernelBefore();
}

}  // namespace lm::cuda

#endif  // LM_ENGINE_BACKEND_CUDA_KERNEL_ORDER_H_
