// What the launching half of a .cu file needs: grids, and kernels that are templates of a type.
#ifndef LM_ENGINE_BACKEND_CUDA_LAUNCH_H_
#define LM_ENGINE_BACKEND_CUDA_LAUNCH_H_

#include <type_traits>

#include "engine/backend/cuda/kernel_launch.cuh"
#include "engine/backend/cuda/kernel_order.cuh"
#include "engine/backend/cuda/kernels.h"
#include "engine/backend/cuda/weight_block.cuh"
#include "engine/gguf/coded_blocks.h"

namespace lm::cuda {

constexpr int kWarp = 32;

inline dim3 Grid(int64_t x, int64_t y = 1) {
  return dim3(static_cast<unsigned>(x), static_cast<unsigned>(y));
}

inline int64_t DivideUp(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Calls `function` with the integral_constant of a quantised type.
template <typename Function>
cudaError_t WithQuantizedType(DType dtype, Function function) {
  switch (dtype) {
    case DType::kQ4_0:
      return function(std::integral_constant<DType, DType::kQ4_0>());
    case DType::kQ4_1:
      return function(std::integral_constant<DType, DType::kQ4_1>());
    case DType::kQ5_0:
      return function(std::integral_constant<DType, DType::kQ5_0>());
    case DType::kQ5_1:
      return function(std::integral_constant<DType, DType::kQ5_1>());
    case DType::kQ8_0:
      return function(std::integral_constant<DType, DType::kQ8_0>());
    case DType::kQ2_K:
      return function(std::integral_constant<DType, DType::kQ2_K>());
    case DType::kQ3_K:
      return function(std::integral_constant<DType, DType::kQ3_K>());
    case DType::kQ4_K:
      return function(std::integral_constant<DType, DType::kQ4_K>());
    case DType::kQ5_K:
      return function(std::integral_constant<DType, DType::kQ5_K>());
    case DType::kQ6_K:
      return function(std::integral_constant<DType, DType::kQ6_K>());
    case DType::kIQ4_NL:
      return function(std::integral_constant<DType, DType::kIQ4_NL>());
    case DType::kIQ4_XS:
      return function(std::integral_constant<DType, DType::kIQ4_XS>());
    case DType::kMXFP4:
      return function(std::integral_constant<DType, DType::kMXFP4>());
    default:
      if (IsCoded(dtype)) return function(std::integral_constant<DType, kExpanded>());
      return cudaErrorInvalidValue;
  }
}

// The same for what is packed (packed_weights.cuh): quantised, F16 and BF16.
template <typename Function>
cudaError_t WithPackedType(DType dtype, Function function) {
  if (dtype == DType::kF16) return function(std::integral_constant<DType, DType::kF16>());
  if (dtype == DType::kBF16) return function(std::integral_constant<DType, DType::kBF16>());
  return WithQuantizedType(dtype, function);
}

}  // namespace lm::cuda

#endif  // LM_ENGINE_BACKEND_CUDA_LAUNCH_H_
