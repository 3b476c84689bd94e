#include "engine/backend/cuda/multiply_type.cuh"

namespace lm::cuda {

cudaError_t MultiplyPacked(const Queue& queue, DType dtype, const PackedWeights& w,
                           const PackedInput& x, const float* bias, bool adds, Matrix out,
                           const ExpertProducts* experts) {
  const ProductOutput to = {out, bias, adds};
  cudaError_t error = cudaErrorNotSupported;
  for (auto multiply : {MultiplyPlainBlocks, MultiplySuperBlocks, MultiplyOthers}) {
    error = multiply(queue, dtype, w, x, to, experts);
    if (error != cudaErrorNotSupported) break;
  }
  return error;
}

}  // namespace lm::cuda
