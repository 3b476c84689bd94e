// PlacedAttention: a step's plans of attention (attention_plan.h) in a device's memory, each made
// when a layer first needs it.
#ifndef LM_ENGINE_BACKEND_CUDA_PLACED_ATTENTION_H_
#define LM_ENGINE_BACKEND_CUDA_PLACED_ATTENTION_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/backend/cuda/attention_plan.h"
#include "engine/backend/cuda/cuda_device.h"

namespace lm {

class PlacedAttention {
 public:
  // Forgets the plans of the step before.
  void BeginStep() { used_ = 0; }

  // Valid until the next step begins.
  absl::StatusOr<cuda::AttentionTiles> Find(CudaDevice* device, const StepTables& step,
                                            const AttentionKind& kind);
  // Memory for partial results, until the next call.
  absl::StatusOr<float*> Partials(CudaDevice* device, int64_t bytes);

 private:
  struct Placed {
    decltype(AttentionKind().key()) key;
    CudaScratch memory;
    cuda::AttentionTiles tiles;
  };

  std::vector<Placed> placed_;  // the first used_ of them are the step's
  size_t used_ = 0;
  CudaScratch partials_;
  AttentionPlan plan_;
  std::vector<char> packed_;
};

}  // namespace lm

#endif  // LM_ENGINE_BACKEND_CUDA_PLACED_ATTENTION_H_
