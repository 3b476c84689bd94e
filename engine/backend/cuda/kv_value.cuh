// One value of the paged cache: [num_blocks][kv_heads][kKvBlockTokens][head_dim], F16 or F32.
#ifndef LM_ENGINE_BACKEND_CUDA_KV_VALUE_H_
#define LM_ENGINE_BACKEND_CUDA_KV_VALUE_H_

#include "engine/backend/cuda/host_device.cuh"

namespace lm::cuda {

// Tokens a KV block holds (backend.h's kKvBlockTokens, which device code does not include).
inline constexpr int kBlockTokens = 32;

// Index of the first value of a token's head.
LM_HOST_DEVICE int64_t KvIndex(int64_t kv_heads, int64_t head_dim, int64_t block, int64_t head,
                               int64_t token) {
  return ((block * kv_heads + head) * kBlockTokens + token) * head_dim;
}

template <bool kF16>
LM_HOST_DEVICE float LoadKv(const void* data, int64_t i) {
  if constexpr (kF16) {
    return LoadF16(static_cast<const uint16_t*>(data)[i]);
  } else {
    return static_cast<const float*>(data)[i];
  }
}

template <bool kF16>
LM_HOST_DEVICE void StoreKv(float value, void* data, int64_t i) {
  if constexpr (kF16) {
    static_cast<uint16_t*>(data)[i] = StoreF16(value);
  } else {
    static_cast<float*>(data)[i] = value;
  }
}

}  // namespace lm::cuda

#endif  // LM_ENGINE_BACKEND_CUDA_KV_VALUE_H_
