// The input of a product, x (T, K), as its kernels read it: in the order of the tensor cores'
// fragments (warp_matrix.cuh). A unit is 8 tokens (a tile) and 64 columns; units of a tile stand
// side by side.
//
// For quantised weights, of 704 bytes:
//   [block 2][lane 32][b 2] words of four int8: x ~ s q, as numeric_contract.h says
//   [block 2][token 8] s, then likewise the sums of q, and those of the first halves, as F32
// For 16-bit weights, of 1024 bytes a part:
//   [columns of 16: 4][lane 32][b 2] words of two values: x times the token's factor, a power of
//   two (float_product.cuh), rounded to 16 bits. A second part has what the first has lost, for
//   BF16.
// A warp reads a block's words, or those of 16 columns, as one run of 256 bytes: side by side with
// other blocks' they were twice the wavefronts of shared memory and the sectors of global memory.
#ifndef LM_ENGINE_BACKEND_CUDA_PACKED_INPUT_H_
#define LM_ENGINE_BACKEND_CUDA_PACKED_INPUT_H_

#include "engine/backend/cuda/host_device.cuh"
#include "engine/backend/cuda/packed_weights.cuh"

namespace lm::cuda {

inline constexpr int kTileTokens = 8;
inline constexpr int kInputScales = 512;  // where the scales begin

constexpr int InputParts(const PackedFormat& format) {
  return format.codes == Codes::kBf16 ? 2 : 1;
}
constexpr int InputUnitBytes(const PackedFormat& format) {
  return format.quantised() ? 704 : 1024 * InputParts(format);
}

// Numbers that a type's products need of a block and token.
inline constexpr int kMostInputNumbers = 3;
template <DType kType>
inline constexpr int kInputNumbers = !kPackedFormat<kType>.minima     ? 1
                                     : !kPackedFormat<kType>.halves() ? 2
                                                                      : kMostInputNumbers;

// Of a token that a thread block packs for itself (own_input.cuh): bytes; columns for 16-bit
// weights, whose factor is known only when all values are.
inline constexpr int kMostOwnBytes = 44 << 10;
inline constexpr int kMostOwnCols16 = 4096;

struct PackedInput {
  const char* data;
  const float* inverse_factors;  // a token, for 16-bit weights; else null
  int64_t tokens;
  int64_t units;  // of a tile

  template <DType kType>
  LM_HOST_DEVICE const char* unit(int64_t tile, int64_t unit) const {
    return data + (tile * units + unit) * InputUnitBytes(kPackedFormat<kType>);
  }
};

}  // namespace lm::cuda

#endif  // LM_ENGINE_BACKEND_CUDA_PACKED_INPUT_H_
