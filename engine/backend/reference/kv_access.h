// One value of the paged cache, in the reference's arrangement.
#ifndef LM_ENGINE_BACKEND_REFERENCE_KV_ACCESS_H_
#define LM_ENGINE_BACKEND_REFERENCE_KV_ACCESS_H_

#include <cstdint>

#include "engine/backend/backend.h"
#include "engine/base/float16.h"

namespace lm {

// Index of the first value of a token's head: values, not bytes.
inline int64_t KvOffset(const KvLayer& layer, int64_t block, int64_t head, int64_t token) {
  return ((block * layer.kv_heads + head) * kKvBlockTokens + token) * layer.head_dim;
}

inline float LoadKv(const KvLayer& layer, const void* data, int64_t i) {
  if (layer.dtype == DType::kF32) return static_cast<const float*>(data)[i];
  return HalfToFloat(static_cast<const uint16_t*>(data)[i]);
}

inline void StoreKv(const KvLayer& layer, void* data, int64_t i, float value) {
  if (layer.dtype == DType::kF32) {
    static_cast<float*>(data)[i] = value;
  } else {
    static_cast<uint16_t*>(data)[i] = FloatToHalf(value);
  }
}

}  // namespace lm

#endif  // LM_ENGINE_BACKEND_REFERENCE_KV_ACCESS_H_
