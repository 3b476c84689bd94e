// Products with blocks of 256.
#include "engine/backend/cuda/multiply_type.cuh"

namespace lm::cuda {

cudaError_t MultiplySuperBlocks(const Queue& queue, DType dtype, const PackedWeights& w,
                                const PackedInput& x, const InputRows& input,
                                const ProductOutput& to, const ExpertProducts* experts) {
  switch (dtype) {
    case DType::kQ2_K:
      return MultiplyType<DType::kQ2_K>(queue, w, x, input, to, experts);
    case DType::kQ3_K:
      return MultiplyType<DType::kQ3_K>(queue, w, x, input, to, experts);
    case DType::kQ4_K:
      return MultiplyType<DType::kQ4_K>(queue, w, x, input, to, experts);
    case DType::kQ5_K:
      return MultiplyType<DType::kQ5_K>(queue, w, x, input, to, experts);
    case DType::kQ6_K:
      return MultiplyType<DType::kQ6_K>(queue, w, x, input, to, experts);
    case DType::kIQ4_XS:
      return MultiplyType<DType::kIQ4_XS>(queue, w, x, input, to, experts);
    default:
      return cudaErrorNotSupported;
  }
}

}  // namespace lm::cuda
