// Products with blocks of 32 that have a scale each.
#include "engine/backend/cuda/multiply_type.cuh"

namespace lm::cuda {

cudaError_t MultiplyPlainBlocks(const Queue& queue, DType dtype, const PackedWeights& w,
                                const PackedInput& x, const InputRows& input,
                                const ProductOutput& to, const ExpertProducts* experts) {
  switch (dtype) {
    case DType::kQ4_0:
      return MultiplyType<DType::kQ4_0>(queue, w, x, input, to, experts);
    case DType::kQ4_1:
      return MultiplyType<DType::kQ4_1>(queue, w, x, input, to, experts);
    case DType::kQ5_0:
      return MultiplyType<DType::kQ5_0>(queue, w, x, input, to, experts);
    case DType::kQ5_1:
      return MultiplyType<DType::kQ5_1>(queue, w, x, input, to, experts);
    case DType::kQ8_0:
      return MultiplyType<DType::kQ8_0>(queue, w, x, input, to, experts);
    case DType::kIQ4_NL:
      return MultiplyType<DType::kIQ4_NL>(queue, w, x, input, to, experts);
    case DType::kMXFP4:
      return MultiplyType<DType::kMXFP4>(queue, w, x, input, to, experts);
    default:
      return cudaErrorNotSupported;
  }
}

}  // namespace lm::cuda
