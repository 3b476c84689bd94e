// Which kernel makes a product: the library's, or one of the two that keep MatMul to the bit.
#include "engine/backend/check_arguments.h"
#include "engine/backend/cuda/cuda_backend.h"
#include "engine/backend/cuda/cuda_ops.h"
#include "engine/base/status_macros.h"

namespace lm {

absl::Status CudaBackend::MatMul(const WeightMatrix& w, Tensor x, Tensor bias, Tensor out) {
  RETURN_IF_ERROR(CheckMatMul(w, x, bias, out));
  RETURN_IF_ERROR(device_->Begin());
  if (x.rows == 0) return absl::OkStatus();
  const cuda::Weights weights = static_cast<const CudaMatrix&>(w).weights();
  const float* bias_or_null = bias.empty() ? nullptr : bias.row<float>(0);
  if (!exact_products_ && x.rows >= kLibraryRows && library_.Takes(weights)) {
    return library_.Multiply(weights, ToMatrix(x), bias_or_null, ToMatrix(out));
  }
  const cuda::Queue& queue = device_->queue();
  if (!Traits(w.dtype()).quantised) {
    return device_->Check(
        cuda::MultiplyFloat(queue, weights, ToMatrix(x), bias_or_null, ToMatrix(out)), "MatMul");
  }
  ASSIGN_OR_RETURN(void* scratch,
                   activations_.Reserve(device_.get(), cuda::ActivationBytes(x.rows, x.cols)));
  auto* blocks = static_cast<cuda::ActivationBlock*>(scratch);
  RETURN_IF_ERROR(device_->Check(cuda::QuantizeActivations(queue, ToMatrix(x), blocks), "MatMul"));
  return device_->Check(
      cuda::MultiplyQuantized(queue, weights, blocks, bias_or_null, ToMatrix(out)), "MatMul");
}

}  // namespace lm
