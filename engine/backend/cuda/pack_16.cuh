// Rounding a row of a product's input to 16 bits, as PackInput and the products of one token do it:
// each value times the row's factor (float_product.cuh), and for BF16 what that has lost.
#ifndef LM_ENGINE_BACKEND_CUDA_PACK_16_H_
#define LM_ENGINE_BACKEND_CUDA_PACK_16_H_

#include "engine/backend/cuda/float_product.cuh"
#include "engine/backend/cuda/pack_quad.cuh"
#include "engine/backend/cuda/warp_matrix.cuh"

namespace lm::cuda {

__device__ __forceinline__ uint32_t GreatestMagnitude(uint32_t bits, const float (&values)[kQuad]) {
#pragma unroll
  for (int j = 0; j < kQuad; ++j) bits = max(bits, FloatToBits(values[j]) & 0x7fffffffu);
  return bits;
}

// The factor of a row, from the greatest of each thread's values, by all threads. `greatest` is
// shared.
template <int kWarps>
__device__ __forceinline__ float FactorOfRow(uint32_t max_bits, uint32_t* greatest) {
  max_bits = __reduce_max_sync(~0u, max_bits);
  if (threadIdx.x % kWarp == 0) greatest[threadIdx.x / kWarp] = max_bits;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kWarps; ++i) max_bits = max(max_bits, greatest[i]);
  return RowFactor(max_bits);
}

// Stores the values of four columns from `column` on, of 16 whose words for one token begin at
// `to`: two of a lane are 8 bytes apart from the next lane's. A second part is kPartBytes behind.
template <bool kBf16, int kPartBytes>
__device__ __forceinline__ void StoreQuad16(const float (&values)[kQuad], float factor, int column,
                                            char* to) {
  const int k = column % 16;
  to += k % 8 / 2 * 8 + k / 8 * 4;
#pragma unroll
  for (int pair = 0; pair < 2; ++pair) {
    const float first = values[2 * pair] * factor, second = values[2 * pair + 1] * factor;
    auto* words = reinterpret_cast<uint32_t*>(to + pair * 8);
    if constexpr (kBf16) {
      const uint16_t a = StoreBf16(first), b = StoreBf16(second);
      words[0] = a | uint32_t{b} << 16;
      words[kPartBytes / 4] =
          StoreBf16(first - LoadBf16(a)) | uint32_t{StoreBf16(second - LoadBf16(b))} << 16;
    } else {
      words[0] = StoreTwoF16(first, second);
    }
  }
}

}  // namespace lm::cuda

#endif  // LM_ENGINE_BACKEND_CUDA_PACK_16_H_
