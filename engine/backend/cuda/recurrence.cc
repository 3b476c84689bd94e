// Ops with a state of fixed size for each sequence.
#include "engine/backend/check_arguments.h"
#include "engine/backend/cuda/cuda_ops.h"
#include "engine/base/status_macros.h"

namespace lm {

absl::Status CudaBackend::CausalConv(Tensor x, Tensor weight, Tensor bias, Activation activation,
                                     const StateLayer& layer, Tensor out) {
  RETURN_IF_ERROR(CheckCausalConv(step_index(), x, weight, bias, activation, layer, out));
  RETURN_IF_ERROR(device_->Begin());
  if (x.rows == 0 || x.cols == 0) return absl::OkStatus();
  return device_->Check(
      cuda::CausalConv(device_->queue(), ToMatrix(x), ToMatrix(weight),
                       bias.empty() ? nullptr : bias.row<float>(0), activation, placed_.rows(),
                       {layer.data, layer.slot_stride}, ToMatrix(out)),
      "CausalConv");
}

absl::Status CudaBackend::DeltaRule(const DeltaRuleInputs& inputs, const StateLayer& layer,
                                    Tensor out) {
  RETURN_IF_ERROR(CheckDeltaRule(step_index(), inputs, layer, out));
  RETURN_IF_ERROR(device_->Begin());
  if (out.rows == 0 || out.cols == 0) return absl::OkStatus();
  const bool reads = inputs.rule == StateRule::kDelta;
  const bool by_token = inputs.decays_by_token();
  const cuda::DeltaRows rows = {ToMatrix(inputs.q),
                                ToMatrix(inputs.k),
                                ToMatrix(inputs.v),
                                ToMatrix(inputs.alpha),
                                ToMatrix(inputs.beta),
                                by_token ? nullptr : inputs.dt_bias.row<float>(0),
                                by_token ? nullptr : inputs.a.row<float>(0),
                                inputs.heads,
                                inputs.key_heads,
                                inputs.grouped,
                                reads,
                                inputs.a.cols != inputs.heads,
                                inputs.skip.empty() ? nullptr : inputs.skip.row<float>(0),
                                ToMatrix(inputs.log_decay),
                                ToMatrix(inputs.erase)};
  return device_->Check(cuda::DeltaRule(device_->queue(), rows, placed_.rows(),
                                        {layer.data, layer.slot_stride}, ToMatrix(out)),
                        "DeltaRule");
}

}  // namespace lm
