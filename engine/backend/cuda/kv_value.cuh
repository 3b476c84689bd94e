// A block of the paged cache (backend.h, KvLayer): [kv_heads][kBlockTokens][dim], in int8 the
// tokens' scales behind each head of a block.
//
// A head of F16, or of int8's codes, whose dim is a multiple of 16 lies in the order of the tensor
// cores' fragments B of 16 bits (warp_matrix.cuh), 16 tokens by 16 dims after the other, 8 values a
// lane: of keys, b[0] and b[1] of the first 8 tokens, of the other 8 (rows of B are dims); of
// values, of the first 8 dims, of the other 8 (rows of B are tokens).
#ifndef LM_ENGINE_BACKEND_CUDA_KV_VALUE_H_
#define LM_ENGINE_BACKEND_CUDA_KV_VALUE_H_

#include "engine/backend/cuda/host_device.cuh"
#include "engine/backend/cuda/quantize_value.cuh"
#include "engine/tensor/dtype.h"

namespace lm::cuda {

// Tokens a KV block holds (step_tables.h's kKvBlockTokens, which device code does not include).
inline constexpr int kBlockTokens = 32;

// Bytes from the start of the keys or the values, `dim` of them a token, whose blocks are
// block_stride apart, to a head of a block.
template <DType kType>
LM_HOST_DEVICE int64_t KvHeadOffset(int64_t block_stride, int64_t dim, int64_t block,
                                    int64_t head) {
  constexpr int64_t kBytes = kType == DType::kF32 ? 4 : kType == DType::kF16 ? 2 : 1;
  constexpr int64_t kScales = kType == DType::kI8 ? kBlockTokens * sizeof(float) : 0;
  return block * block_stride + head * (kBlockTokens * dim * kBytes + kScales);
}

// F32 -> binary16, to nearest even. Finite values stay finite: those beyond its range become the
// greatest there is (an infinite one times a weight of 0 would be NaN, for rows too that hardly
// look there). What is no number, or infinite, is still that.
LM_HOST_DEVICE uint16_t StoreFiniteF16(float value) {
  constexpr float kMost = 65504;
  const float size = fabsf(value);
  return StoreF16(size > kMost && size < INFINITY ? copysignf(kMost, value) : value);
}

enum class KvPart { kKeys, kValues };

// Whether a head lies in fragments.
template <DType kType>
LM_HOST_DEVICE bool KvInFragments(int64_t dim) {
  return kType != DType::kF32 && dim % 16 == 0;
}

// Which of a head's values is value i of a token.
template <DType kType>
LM_HOST_DEVICE int64_t KvPlace(KvPart part, int64_t dim, int64_t token, int64_t i) {
  if (!KvInFragments<kType>(dim)) return token * dim + i;
  // Of 16 by 16: the row and the column of B.
  const int64_t row = (part == KvPart::kKeys ? i : token) % 16;
  const int64_t col = (part == KvPart::kKeys ? token : i) % 16;
  const int64_t lane = col % 8 * 4 + row % 8 / 2, word = col / 8 * 2 + row / 8;
  return ((token / 16 * (dim / 16) + i / 16) * 32 + lane) * 8 + word * 2 + row % 2;
}

// Value i of a token, without its scale. `head` is a head of a block, here and below.
template <DType kType>
LM_HOST_DEVICE float LoadKv(KvPart part, const void* head, int64_t dim, int64_t token, int64_t i) {
  const int64_t at = KvPlace<kType>(part, dim, token, i);
  if constexpr (kType == DType::kF16) return LoadF16(static_cast<const uint16_t*>(head)[at]);
  if constexpr (kType == DType::kI8) return static_cast<const int8_t*>(head)[at];
  return static_cast<const float*>(head)[at];
}

// A token's scale: 1 where the cache is not int8.
template <DType kType>
LM_HOST_DEVICE float LoadKvScale(const void* head, int64_t dim, int64_t token) {
  if constexpr (kType != DType::kI8) return 1.0f;
  const char* scales = static_cast<const char*>(head) + kBlockTokens * dim;
  return reinterpret_cast<const float*>(scales)[token];
}

// Stores one value. REQUIRES: the cache is not int8.
template <DType kType>
LM_HOST_DEVICE void StoreKv(KvPart part, float value, int64_t dim, int64_t token, int64_t i,
                            void* head) {
  static_assert(kType != DType::kI8);
  const int64_t at = KvPlace<kType>(part, dim, token, i);
  if constexpr (kType == DType::kF16) {
    static_cast<uint16_t*>(head)[at] = StoreFiniteF16(value);
  } else {
    static_cast<float*>(head)[at] = value;
  }
}

// Stores one value, and the scale, of a token in a cache of int8: QuantizeToInt8 of
// quantize_to_codes.h.
LM_HOST_DEVICE void StoreKvCode(KvPart part, float value, const ActivationScale& scale, int64_t dim,
                                int64_t token, int64_t i, void* head) {
  static_cast<int8_t*>(head)[KvPlace<DType::kI8>(part, dim, token, i)] =
      static_cast<int8_t>(QuantizeActivation(value, scale));
}
LM_HOST_DEVICE void StoreKvScale(const ActivationScale& scale, int64_t dim, int64_t token,
                                 void* head) {
  char* scales = static_cast<char*>(head) + kBlockTokens * dim;
  reinterpret_cast<float*>(scales)[token] = scale.s;
}

}  // namespace lm::cuda

#endif  // LM_ENGINE_BACKEND_CUDA_KV_VALUE_H_
