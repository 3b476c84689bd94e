#include "engine/backend/check_arguments.h"
#include "engine/backend/cuda/cuda_ops.h"
#include "engine/backend/cuda/kv_value.cuh"
#include "engine/base/status_macros.h"

namespace lm {

absl::Status CudaBackend::RopeAndStoreKv(Tensor q, Tensor k, Tensor v, const Rope& rope,
                                         const KvLayer& layer) {
  RETURN_IF_ERROR(CheckRopeAndStoreKv(step_index(), q, k, v, rope, layer));
  RETURN_IF_ERROR(device_->Begin());
  if (q.rows == 0) return absl::OkStatus();
  return device_->Check(
      cuda::RopeAndStoreKv(device_->queue(), ToMatrix(q), ToMatrix(k), ToMatrix(v),
                           placed_.rope(rope.table), rope.pairing == RopePairing::kHalves,
                           placed_.slots(layer.cache_class), ToCacheLayer(layer)),
      "RopeAndStoreKv");
}

absl::Status CudaBackend::CopyKvBlock(const KvLayer& layer, int32_t from, int32_t to,
                                      int32_t tokens) {
  RETURN_IF_ERROR(CheckCopyKvBlock(layer, from, to, tokens));
  RETURN_IF_ERROR(device_->Begin());
  if (tokens == 0 || from == to) return absl::OkStatus();
  const std::pair<void*, int64_t> parts[] = {{layer.keys, layer.key_dim},
                                             {layer.values, layer.value_dim}};
  for (const auto& [data, dim] : parts) {
    const int64_t pitch = layer.HeadBytes(dim);
    // In fragments a token's values are no run: the others come along, which nobody reads.
    const bool whole = layer.dtype == DType::kF16 && cuda::KvInFragments<DType::kF16>(dim);
    const int64_t width = RowBytes(layer.dtype, (whole ? kKvBlockTokens : tokens) * dim);
    const int64_t scales = RowBytes(layer.dtype, kKvBlockTokens * dim);
    char* source = static_cast<char*>(data) + from * layer.block_stride;
    char* target = static_cast<char*>(data) + to * layer.block_stride;
    RETURN_IF_ERROR(device_->Copy2D(source, target, pitch, width, layer.kv_heads));
    if (layer.dtype != DType::kI8) continue;
    RETURN_IF_ERROR(device_->Copy2D(source + scales, target + scales, pitch, tokens * sizeof(float),
                                    layer.kv_heads));
  }
  return absl::OkStatus();
}

}  // namespace lm
