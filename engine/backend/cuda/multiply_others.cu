// Products with 16-bit weights, and with coded ones, which are expanded (weight_block.cuh).
#include "engine/backend/cuda/multiply_type.cuh"

namespace lm::cuda {

cudaError_t MultiplyOthers(const Queue& queue, DType dtype, const PackedWeights& w,
                           const PackedInput& x, const InputRows& input, const ProductOutput& to,
                           const ExpertProducts* experts) {
  switch (dtype) {
    case DType::kF16:
      return MultiplyType<DType::kF16>(queue, w, x, input, to, experts);
    case DType::kBF16:
      return MultiplyType<DType::kBF16>(queue, w, x, input, to, experts);
    default:
      return IsCoded(dtype) ? MultiplyType<kExpanded>(queue, w, x, input, to, experts)
                            : cudaErrorNotSupported;
  }
}

}  // namespace lm::cuda
