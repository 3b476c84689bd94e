// DeviceGuard: while it lives a GPU is this thread's current one. What is put into a queue, given
// back or asked about goes by that, and whose thread it is may have chosen another.
#ifndef LM_ENGINE_BACKEND_CUDA_DEVICE_GUARD_H_
#define LM_ENGINE_BACKEND_CUDA_DEVICE_GUARD_H_

#include "engine/backend/cuda/cuda_api.h"

namespace lm {

class DeviceGuard {
 public:
  // REQUIRES: `api` outlives it.
  DeviceGuard(const CudaApi& api, int device) : api_(api), error_(api.GetDevice(&before_)) {
    if (error_ != cudaSuccess || before_ == device) return;
    error_ = api.SetDevice(device);
    changed_ = error_ == cudaSuccess;
  }
  // (To choose a device begins work with it: a thread that had none keeps this one.)
  ~DeviceGuard() {
    if (changed_ && before_ >= 0) api_.SetDevice(before_);
  }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

  cudaError_t error() const { return error_; }

 private:
  const CudaApi& api_;
  int before_ = -1;
  cudaError_t error_;
  bool changed_ = false;
};

}  // namespace lm

#endif  // LM_ENGINE_BACKEND_CUDA_DEVICE_GUARD_H_
