#include "engine/backend/cuda/cuda_api.h"

namespace lm {

const CudaApi& RuntimeApi() {
  static constexpr CudaApi kApi = {
      .GetDeviceCount = cudaGetDeviceCount,
      .GetDeviceProperties = cudaGetDeviceProperties,
      .SetDevice = cudaSetDevice,
      .StreamCreateWithFlags = cudaStreamCreateWithFlags,
      .StreamDestroy = cudaStreamDestroy,
      .StreamSynchronize = cudaStreamSynchronize,
      .Malloc = cudaMalloc,
      .Free = cudaFree,
      .MemGetInfo = cudaMemGetInfo,
      .MemcpyAsync = cudaMemcpyAsync,
      .Memcpy2DAsync = cudaMemcpy2DAsync,
      .MemsetAsync = cudaMemsetAsync,
      .LaunchKernel = cudaLaunchKernel,
      .FuncSetAttribute = [](const void* kernel, cudaFuncAttribute attribute,
                             int value) { return cudaFuncSetAttribute(kernel, attribute, value); },
      .GraphCreate = [](cudaGraph_t* graph) { return cudaGraphCreate(graph, 0); },
      .GraphAddKernelNode = cudaGraphAddKernelNode,
      .GraphInstantiate = [](cudaGraphExec_t* exec,
                             cudaGraph_t graph) { return cudaGraphInstantiate(exec, graph, 0); },
      .GraphExecKernelNodeSetParams = cudaGraphExecKernelNodeSetParams,
      .GraphLaunch = cudaGraphLaunch,
      .GraphExecDestroy = cudaGraphExecDestroy,
      .GraphDestroy = cudaGraphDestroy,
      .MallocHost = [](void** data, size_t bytes) { return cudaMallocHost(data, bytes); },
      .FreeHost = cudaFreeHost,
      .GetLastError = cudaGetLastError,
  };
  return kApi;
}

}  // namespace lm
