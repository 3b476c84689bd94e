#include "engine/backend/check_arguments.h"
#include "engine/backend/cuda/cuda_ops.h"
#include "engine/base/status_macros.h"

namespace lm {

absl::Status CudaBackend::RopeAndStoreKv(Tensor q, Tensor k, Tensor v, Tensor rope,
                                         RopePairing pairing, absl::Span<const int64_t> slots,
                                         const KvLayer& layer) {
  RETURN_IF_ERROR(CheckRopeAndStoreKv(q, k, v, rope, slots, layer));
  RETURN_IF_ERROR(device_->Begin());
  if (q.rows == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(const int64_t* on_device, slots_.Set(device_.get(), slots.data(), slots.size()));
  return device_->Check(
      cuda::RopeAndStoreKv(device_->queue(), ToMatrix(q), ToMatrix(k), ToMatrix(v), ToMatrix(rope),
                           pairing == RopePairing::kHalves, on_device, ToCacheLayer(layer)),
      "RopeAndStoreKv");
}

absl::Status CudaBackend::CopyKvBlock(const KvLayer& layer, int32_t from, int32_t to,
                                      int32_t tokens) {
  RETURN_IF_ERROR(CheckCopyKvBlock(layer, from, to, tokens));
  RETURN_IF_ERROR(device_->Begin());
  if (tokens == 0 || from == to) return absl::OkStatus();
  const int64_t pitch = layer.head_bytes();
  const int64_t width = RowBytes(layer.dtype, int64_t{tokens} * layer.head_dim);
  const int64_t scales = RowBytes(layer.dtype, int64_t{kKvBlockTokens} * layer.head_dim);
  for (void* data : {layer.keys, layer.values}) {
    char* source = static_cast<char*>(data) + from * layer.block_bytes();
    char* target = static_cast<char*>(data) + to * layer.block_bytes();
    RETURN_IF_ERROR(device_->Copy2D(source, target, pitch, width, layer.kv_heads));
    if (layer.dtype != DType::kI8) continue;
    RETURN_IF_ERROR(device_->Copy2D(source + scales, target + scales, pitch, tokens * sizeof(float),
                                    layer.kv_heads));
  }
  return absl::OkStatus();
}

absl::Status CudaBackend::ZeroKvBlock(const KvLayer& layer, int32_t block) {
  RETURN_IF_ERROR(CheckKvBlock(layer, block));
  for (void* data : {layer.keys, layer.values}) {
    RETURN_IF_ERROR(
        device_->Zero(static_cast<char*>(data) + block * layer.block_bytes(), layer.block_bytes()));
  }
  return absl::OkStatus();
}

}  // namespace lm
