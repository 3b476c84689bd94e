// The calls of the CUDA runtime that this backend makes, as a table: so that a test can put its own
// in their place and fail any one of them.
#ifndef LM_ENGINE_BACKEND_CUDA_CUDA_API_H_
#define LM_ENGINE_BACKEND_CUDA_CUDA_API_H_

#include <cuda_runtime_api.h>

#include <cstddef>

namespace lm {

struct CudaApi {
  cudaError_t (*GetDeviceCount)(int* count);
  cudaError_t (*GetDeviceProperties)(cudaDeviceProp* properties, int device);
  // The thread's current device; -1: it has worked with none.
  cudaError_t (*GetDevice)(int* device);
  cudaError_t (*SetDevice)(int device);
  cudaError_t (*StreamCreateWithFlags)(cudaStream_t* stream, unsigned flags);
  cudaError_t (*StreamDestroy)(cudaStream_t stream);
  cudaError_t (*StreamSynchronize)(cudaStream_t stream);
  // What is put into the stream from now on begins when what was in the event's stream when that
  // was recorded has ended: on another device, too.
  cudaError_t (*StreamWaitEvent)(cudaStream_t stream, cudaEvent_t event);
  cudaError_t (*EventCreate)(cudaEvent_t* event);  // without times
  cudaError_t (*EventRecord)(cudaEvent_t event, cudaStream_t stream);
  cudaError_t (*EventSynchronize)(cudaEvent_t event);
  cudaError_t (*EventDestroy)(cudaEvent_t event);
  // Whether, and from now on that, the kernels of a device use another one's memory; the second for
  // the current device.
  cudaError_t (*DeviceCanAccessPeer)(int* can, int device, int peer);
  cudaError_t (*DeviceEnablePeerAccess)(int peer);
  cudaError_t (*Malloc)(void** data, size_t bytes);
  cudaError_t (*Free)(void* data);
  cudaError_t (*MemGetInfo)(size_t* free, size_t* total);
  cudaError_t (*MemcpyAsync)(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                             cudaStream_t stream);
  cudaError_t (*MemsetAsync)(void* data, int value, size_t bytes, cudaStream_t stream);
  cudaError_t (*LaunchKernel)(const void* kernel, dim3 grid, dim3 block, void** arguments,
                              size_t shared_bytes, cudaStream_t stream);
  // Brings the kernel's code to the current device.
  cudaError_t (*FuncGetAttributes)(cudaFuncAttributes* attributes, const void* kernel);
  cudaError_t (*FuncSetAttribute)(const void* kernel, cudaFuncAttribute attribute, int value);
  // Graphs, whose nodes are kernels, each of the device that is current when it is added
  // (launch_recorder.h).
  cudaError_t (*GraphCreate)(cudaGraph_t* graph);
  cudaError_t (*GraphAddKernelNode)(cudaGraphNode_t* node, cudaGraph_t graph,
                                    const cudaGraphNode_t* before, size_t num_before,
                                    const cudaKernelNodeParams* params);
  // `to` may begin when all thread blocks of `from` have let it (kernel_order.cuh).
  cudaError_t (*GraphAddProgrammaticEdge)(cudaGraph_t graph, cudaGraphNode_t from,
                                          cudaGraphNode_t to);
  cudaError_t (*GraphInstantiate)(cudaGraphExec_t* exec, cudaGraph_t graph);
  cudaError_t (*GraphExecKernelNodeSetParams)(cudaGraphExec_t exec, cudaGraphNode_t node,
                                              const cudaKernelNodeParams* params);
  cudaError_t (*GraphLaunch)(cudaGraphExec_t exec, cudaStream_t stream);
  cudaError_t (*GraphExecDestroy)(cudaGraphExec_t exec);
  cudaError_t (*GraphDestroy)(cudaGraph_t graph);
  // Memory of the host that the device copies from and to by itself.
  cudaError_t (*MallocHost)(void** data, size_t bytes);
  cudaError_t (*FreeHost)(void* data);
  // Returns and forgets the last error.
  cudaError_t (*GetLastError)();
};

// The runtime itself (linked statically; it looks for the driver at the first call).
const CudaApi& RuntimeApi();

}  // namespace lm

#endif  // LM_ENGINE_BACKEND_CUDA_CUDA_API_H_
