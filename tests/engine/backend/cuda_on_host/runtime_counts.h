// What the host has asked of the runtime, and when it says no. All are thread-safe but
// TakeRuntimeCounts.
#ifndef LM_TESTS_ENGINE_BACKEND_CUDA_ON_HOST_RUNTIME_COUNTS_H_
#define LM_TESTS_ENGINE_BACKEND_CUDA_ON_HOST_RUNTIME_COUNTS_H_

#include <cuda_runtime_api.h>

#include <cstdint>

namespace lm::on_host {

struct RuntimeCounts {
  int64_t kernels = 0;   // that have run, in graphs too
  int64_t launches = 0;  // of kernels by themselves
  int64_t graph_launches = 0;
  int64_t joins = 0;  // of graphs' kernels of the first device that wait for another one's
  int64_t synchronisations = 0;
  int64_t copies = 0;
  int64_t allocations = 0;  // of the device's memory, refused ones too
  int64_t bytes_to_device = 0, bytes_to_host = 0;
};

// Since the last call.
RuntimeCounts TakeRuntimeCounts();

// How much memory the device has; 0: as at the beginning, plenty.
void SetDeviceBytes(int64_t bytes);

// How much shared memory a multiprocessor has; 0: as at the beginning, it does not say.
void SetMultiprocessorBytes(int64_t bytes);

// Whether the devices run the kernels' code; whether they can read each other's memory.
void SetRunsKernels(bool runs);
void SetPeersCanRead(bool can);

// From the wait after so many more on, all calls fail as after a fault inside a kernel, until the
// device is back: of this device, or of all.
void LoseDeviceAfter(int synchronisations, int device = -1);
// Counts calls from 1 on; those from `first` to `last` end with `error`, and have done nothing
// unless they give something back. GetLastError is none of them.
void FailCalls(int64_t first, int64_t last, cudaError_t error);
int64_t CallsSeen();
void BringDeviceBack();  // ends both

}  // namespace lm::on_host

#endif  // LM_TESTS_ENGINE_BACKEND_CUDA_ON_HOST_RUNTIME_COUNTS_H_
