// A CUDA runtime with one device, which is the host, in the place of cuda_api.cc.
#include <cstdlib>
#include <cstring>

#include "engine/backend/cuda/cuda_api.h"

namespace lm {

const CudaApi& RuntimeApi() {
  static constexpr CudaApi kApi = {
      .GetDeviceCount =
          [](int* count) {
            *count = 1;
            return cudaSuccess;
          },
      .GetDeviceProperties =
          [](cudaDeviceProp* properties, int) {
            std::strcpy(properties->name, "the host");
            properties->major = 9;
            return cudaSuccess;
          },
      .SetDevice = [](int) { return cudaSuccess; },
      .StreamCreateWithFlags = [](cudaStream_t*, unsigned) { return cudaSuccess; },
      .StreamDestroy = [](cudaStream_t) { return cudaSuccess; },
      .StreamSynchronize = [](cudaStream_t) { return cudaSuccess; },
      .Malloc =
          [](void** data, size_t bytes) {
            *data = std::malloc(bytes);
            std::memset(*data, 0xcd, bytes);
            return cudaSuccess;
          },
      .Free =
          [](void* data) {
            std::free(data);
            return cudaSuccess;
          },
      .MemGetInfo = [](size_t*, size_t*) { return cudaSuccess; },
      .MemcpyAsync =
          [](void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t) {
            std::memcpy(to, from, bytes);
            return cudaSuccess;
          },
      .Memcpy2DAsync =
          [](void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
             size_t height, cudaMemcpyKind, cudaStream_t) {
            for (size_t i = 0; i < height; ++i) {
              std::memcpy(static_cast<char*>(to) + i * to_pitch,
                          static_cast<const char*>(from) + i * from_pitch, width);
            }
            return cudaSuccess;
          },
      .MemsetAsync =
          [](void* data, int value, size_t bytes, cudaStream_t) {
            std::memset(data, value, bytes);
            return cudaSuccess;
          },
      .LaunchKernel = [](const void*, dim3, dim3, void**, size_t,
                         cudaStream_t) { return cudaSuccess; },  // it has run: device_words.h
      .FuncSetAttribute = [](const void*, cudaFuncAttribute, int) { return cudaSuccess; },
      .GraphCreate = [](cudaGraph_t*) { return cudaSuccess; },  // kernels do not wait here
      .GraphAddKernelNode = [](cudaGraphNode_t*, cudaGraph_t, const cudaGraphNode_t*, size_t,
                               const cudaKernelNodeParams*) { return cudaSuccess; },
      .GraphInstantiate = [](cudaGraphExec_t*, cudaGraph_t) { return cudaSuccess; },
      .GraphExecKernelNodeSetParams = [](cudaGraphExec_t, cudaGraphNode_t,
                                         const cudaKernelNodeParams*) { return cudaSuccess; },
      .GraphLaunch = [](cudaGraphExec_t, cudaStream_t) { return cudaSuccess; },
      .GraphExecDestroy = [](cudaGraphExec_t) { return cudaSuccess; },
      .GraphDestroy = [](cudaGraph_t) { return cudaSuccess; },
      .MallocHost =
          [](void** data, size_t bytes) {
            *data = std::malloc(bytes);
            return cudaSuccess;
          },
      .FreeHost =
          [](void* data) {
            std::free(data);
            return cudaSuccess;
          },
      .GetLastError = [] { return cudaSuccess; },
  };
  return kApi;
}

}  // namespace lm
