// Kernels that are right, or wrong in one place: planted_faults.cu.
#ifndef LM_TESTS_ENGINE_BACKEND_CUDA_ON_HOST_PLANTED_FAULTS_H_
#define LM_TESTS_ENGINE_BACKEND_CUDA_ON_HOST_PLANTED_FAULTS_H_

#include "engine/backend/cuda/kernels.h"

namespace lm::cuda {

enum class Planted {
  kReverse,
  kReverseWarps,
  kRounds,
  kHalves,
  kFragments,
  kCopies,
  kOthersCopies,
  kTranspose,
  kSums,
  kNeighbours,
  kSharedNeighbours,
  kDynamicNeighbours,
  kPairs,
  kHalfWarp,
  kBarriers,
  kReadsBefore,
  kStoresBefore,
  kNeverWaits,
};

// Puts one into the queue. `from` has kPlantedInputs values; what a kernel has for `to` is its own.
inline constexpr int kPlantedInputs = 1024;
cudaError_t LaunchPlanted(const Queue& queue, Planted planted, bool fault, const float* from,
                          float* to);

}  // namespace lm::cuda

#endif  // LM_TESTS_ENGINE_BACKEND_CUDA_ON_HOST_PLANTED_FAULTS_H_
