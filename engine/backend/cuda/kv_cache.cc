// Turns queries and keys, and stores keys and values in the KV cache.
#include "engine/backend/check_arguments.h"
#include "engine/backend/cuda/cuda_ops.h"
#include "engine/base/status_macros.h"

namespace lm {

absl::Status CudaBackend::RopeAndStoreKv(Tensor q, Tensor k, Tensor v, const Rope& rope,
                                         const KvLayer& layer) {
  RETURN_IF_ERROR(CheckRopeAndStoreKv(step_index(), q, k, v, rope, layer));
  RETURN_IF_ERROR(CheckCacheType("RopeAndStoreKv", layer));
  RETURN_IF_ERROR(device_->Begin());
  if (q.rows == 0) return absl::OkStatus();
  return device_->Check(
      cuda::RopeAndStoreKv(device_->queue(), ToMatrix(q), ToMatrix(k), ToMatrix(v),
                           placed_.rope(rope.table), rope.pairing == RopePairing::kHalves,
                           placed_.slots(layer.cache_class), ToCacheLayer(layer)),
      "RopeAndStoreKv");
}

}  // namespace lm
