#include "engine/backend/check_arguments.h"
#include "engine/backend/cuda/cuda_ops.h"
#include "engine/base/status_macros.h"

namespace lm {

absl::Status CudaBackend::Attention(Tensor q, const KvLayer& layer, const AttentionOptions& options,
                                    Tensor out) {
  RETURN_IF_ERROR(CheckAttention(step_index(), q, layer, options, out));
  RETURN_IF_ERROR(device_->Begin());
  if (q.rows == 0) return absl::OkStatus();
  auto values = [](Tensor tensor) { return tensor.empty() ? nullptr : tensor.row<float>(0); };
  const cuda::AttentionScores scores = {options.scale, options.window, options.softcap,
                                        values(options.slopes), values(options.sinks)};
  return device_->Check(cuda::Attention(device_->queue(), ToMatrix(q), placed_.rows(),
                                        placed_.blocks(layer.cache_class), ToCacheLayer(layer),
                                        scores, ToMatrix(out)),
                        "Attention");
}

}  // namespace lm
