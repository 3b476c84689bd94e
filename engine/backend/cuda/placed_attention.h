// PlacedAttention: a step's plans of attention (attention_plan.h) in a device's memory, one for
// each kind of layer. As the tables of PlacedStep, they stay where they are from step to step until
// one needs more room.
#ifndef LM_ENGINE_BACKEND_CUDA_PLACED_ATTENTION_H_
#define LM_ENGINE_BACKEND_CUDA_PLACED_ATTENTION_H_

#include <cstdint>
#include <deque>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/backend/cuda/attention_plan.h"
#include "engine/backend/cuda/cuda_device.h"
#include "engine/backend/cuda/kept_plan.h"

namespace lm {

class PlacedAttention {
 public:
  struct Plan {
    cuda::AttentionTiles tiles;
    int64_t most_tiles;    // at least as many as there are
    int64_t num_partials;  // of AttentionTile::partial
  };

  // Until null is set there is no plan, but room for any of a step within the bounds.
  void set_bounds(const StepBounds* bounds) { bounds_ = bounds; }

  // Plans the step for the kinds that the steps before have asked for.
  // REQUIRES: no kernel waits in the device's queue.
  absl::Status BeginStep(CudaDevice* device, const StepTables& step);

  // Of the step that has begun.
  absl::StatusOr<Plan> Find(CudaDevice* device, const StepTables& step, const AttentionKind& kind);
  // Memory for partial results, until the next call.
  absl::StatusOr<float*> Partials(CudaDevice* device, int64_t bytes);

 private:
  static constexpr size_t kParts = 5;  // arrays
  struct Placed {
    explicit Placed(const AttentionKind& kind) : kept(kind) {}
    KeptPlan kept;
    CudaScratch memory;
    size_t rooms[kParts] = {};  // bytes at most
    size_t begins[kParts] = {};
    Plan plan = {};
    bool is_there = false;  // in the memory, as it was kept last
  };

  absl::Status Place(CudaDevice* device, const StepTables& step, Placed* placed);
  absl::Status MakeRoom(CudaDevice* device, Placed* placed);

  const StepBounds* bounds_ = nullptr;
  std::deque<Placed> placed_;
  CudaScratch partials_;
  std::vector<char> packed_;
};

}  // namespace lm

#endif  // LM_ENGINE_BACKEND_CUDA_PLACED_ATTENTION_H_
