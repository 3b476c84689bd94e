// Attention over the KV cache: by tiles where the rows of the cache fit them, else token by token.
#include <algorithm>

#include "engine/backend/check_arguments.h"
#include "engine/backend/cuda/cuda_ops.h"
#include "engine/base/status_macros.h"

namespace lm {

absl::Status CudaBackend::Attention(Tensor q, const KvLayer& layer, const AttentionOptions& options,
                                    Tensor out) {
  RETURN_IF_ERROR(CheckAttention(step_index(), q, layer, options, out));
  RETURN_IF_ERROR(CheckCacheType("Attention", layer));
  RETURN_IF_ERROR(device_->Begin());
  if (q.rows == 0) return absl::OkStatus();
  auto values = [](Tensor tensor) { return tensor.empty() ? nullptr : tensor.row<float>(0); };
  const cuda::AttentionScores scores = {options.scale, options.window, options.softcap,
                                        values(options.slopes), values(options.sinks)};
  const int64_t dim = std::max(layer.key_dim, layer.value_dim);
  if (layer.dtype != DType::kF32 && layer.key_dim % 16 == 0 && layer.value_dim % 16 == 0 &&
      dim <= cuda::kMostTileDim) {
    const AttentionKind kind = {.cache_class = layer.cache_class,
                                .group = q.cols / layer.key_dim / layer.kv_heads,
                                .kv_heads = layer.kv_heads,
                                .value_dim = layer.value_dim,
                                .window = options.window,
                                .partial_bytes = PartialBytesOn(device_->info().memory_bytes)};
    ASSIGN_OR_RETURN(const PlacedAttention::Plan plan,
                     attention_.Find(device_.get(), step(), kind));
    const int64_t bytes = cuda::AttentionPartialBytes(plan.num_partials, ToCacheLayer(layer));
    ASSIGN_OR_RETURN(float* partials, attention_.Partials(device_.get(), bytes));
    return device_->Check(
        cuda::AttendTiles(device_->queue(), ToMatrix(q), placed_.rows(), plan.tiles,
                          plan.most_tiles, plan.num_partials > 0, placed_.blocks(layer.cache_class),
                          ToCacheLayer(layer), scores, partials, ToMatrix(out)),
        "Attention");
  }
  return device_->Check(cuda::Attention(device_->queue(), ToMatrix(q), placed_.rows(),
                                        placed_.blocks(layer.cache_class), ToCacheLayer(layer),
                                        scores, ToMatrix(out)),
                        "Attention");
}

}  // namespace lm
