#include "engine/model/layer_run.h"

#include "engine/base/status_macros.h"

namespace lm {

absl::Status LayerRun::Apply(const Projection& projection, const ProductInput& input,
                             ProductResult result, Tensor out) const {
  RETURN_IF_ERROR(projection.Apply(backend, input, result, out));
  return AddUpdates(projection.updates(), adapted, input, act.low_rank, backend, out);
}

absl::Status AddToResidual(const LayerRun& run, const Projection& projection,
                           const ProductInput& input, const DeviceNorm& post_norm) {
  const float scale = run.spec.residual_scale;
  if (post_norm.empty() && scale == 1) {
    return run.Apply(projection, input, ProductResult::kIsAdded, run.x());
  }
  const Tensor added = run.act.hidden.Rows(0, run.rows);
  RETURN_IF_ERROR(run.Apply(projection, input, ProductResult::kReplaces, added));
  if (!post_norm.empty()) RETURN_IF_ERROR(run.backend->Normalize(added, post_norm.norm, added));
  return run.backend->Add(run.x(), added, scale);
}

}  // namespace lm
