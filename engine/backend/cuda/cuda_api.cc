#include "engine/backend/cuda/cuda_api.h"

#include <dlfcn.h>

namespace lm {
namespace {

// cudaGetDevice says 0 where nothing was chosen, too: the driver knows whether there is a context.
cudaError_t CurrentDevice(int* device) {
  using GetCurrentContext = int (*)(void** context);  // cuCtxGetCurrent
  void* const driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  void* const function = driver == nullptr ? nullptr : dlsym(driver, "cuCtxGetCurrent");
  if (driver != nullptr) dlclose(driver);
  void* context = nullptr;
  const bool none = function == nullptr ||
                    reinterpret_cast<GetCurrentContext>(function)(&context) != 0 ||
                    context == nullptr;
  *device = -1;
  return none ? cudaSuccess : cudaGetDevice(device);
}

cudaError_t AddProgrammaticEdge([[maybe_unused]] cudaGraph_t graph,
                                [[maybe_unused]] cudaGraphNode_t from,
                                [[maybe_unused]] cudaGraphNode_t to) {
#if CUDART_VERSION >= 12030
  cudaGraphEdgeData edge = {};
  edge.from_port = cudaGraphKernelNodePortProgrammatic;
  edge.type = cudaGraphDependencyTypeProgrammatic;
#if CUDART_VERSION >= 13000
  return cudaGraphAddDependencies(graph, &from, &to, &edge, 1);
#else
  return cudaGraphAddDependencies_v2(graph, &from, &to, &edge, 1);
#endif
#else
  return cudaErrorNotSupported;
#endif
}

}  // namespace

const CudaApi& RuntimeApi() {
  static constexpr CudaApi kApi = {
      .GetDeviceCount = cudaGetDeviceCount,
      .GetDeviceProperties = cudaGetDeviceProperties,
      .GetDevice = CurrentDevice,
      .SetDevice = cudaSetDevice,
      .StreamCreateWithFlags = cudaStreamCreateWithFlags,
      .StreamDestroy = cudaStreamDestroy,
      .StreamSynchronize = cudaStreamSynchronize,
      .StreamWaitEvent = [](cudaStream_t stream,
                            cudaEvent_t event) { return cudaStreamWaitEvent(stream, event, 0); },
      .EventCreate =
          [](cudaEvent_t* event) {
            return cudaEventCreateWithFlags(event, cudaEventDisableTiming);
          },
      .EventRecord = cudaEventRecord,
      .EventSynchronize = cudaEventSynchronize,
      .EventDestroy = cudaEventDestroy,
      .DeviceCanAccessPeer = cudaDeviceCanAccessPeer,
      .DeviceEnablePeerAccess = [](int peer) { return cudaDeviceEnablePeerAccess(peer, 0); },
      .Malloc = cudaMalloc,
      .Free = cudaFree,
      .MemGetInfo = cudaMemGetInfo,
      .MemcpyAsync = cudaMemcpyAsync,
      .MemsetAsync = cudaMemsetAsync,
      .LaunchKernel = cudaLaunchKernel,
      .FuncGetAttributes =
          [](cudaFuncAttributes* attributes, const void* kernel) {
            return cudaFuncGetAttributes(attributes, kernel);
          },
      .FuncSetAttribute = [](const void* kernel, cudaFuncAttribute attribute,
                             int value) { return cudaFuncSetAttribute(kernel, attribute, value); },
      .GraphCreate = [](cudaGraph_t* graph) { return cudaGraphCreate(graph, 0); },
      .GraphAddKernelNode = cudaGraphAddKernelNode,
      .GraphAddProgrammaticEdge = AddProgrammaticEdge,
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
