// A block of the paged cache in the reference's arrangement: [kv_heads][kKvBlockTokens][dim],
// the tokens' scales behind each head of a block where the cache has codes.
#ifndef LM_ENGINE_BACKEND_REFERENCE_KV_ACCESS_H_
#define LM_ENGINE_BACKEND_REFERENCE_KV_ACCESS_H_

#include <cstdint>

#include "engine/backend/backend.h"

namespace lm {

// One head of a block, keys or values.
class KvHeadOfBlock {
 public:
  static KvHeadOfBlock Keys(const KvLayer& layer, int64_t block, int64_t head) {
    return KvHeadOfBlock(layer, layer.keys, layer.key_dim, block, head);
  }
  static KvHeadOfBlock Values(const KvLayer& layer, int64_t block, int64_t head) {
    return KvHeadOfBlock(layer, layer.values, layer.value_dim, block, head);
  }

  // A token's values without their scale, and the scale: 1 unless the cache has codes.
  void Load(int64_t token, float* values) const;
  float Scale(int64_t token) const;
  // Stores a token's values.
  void Store(int64_t token, const float* values);
  // Copies the first `tokens` tokens.
  void CopyFrom(const KvHeadOfBlock& other, int64_t tokens);

 private:
  KvHeadOfBlock(const KvLayer& layer, void* data, int64_t dim, int64_t block, int64_t head)
      : dtype_(layer.dtype),
        dim_(dim),
        codes_(static_cast<char*>(data) + block * layer.block_stride +
               head * layer.HeadBytes(dim)) {}

  float* scales() const {
    return reinterpret_cast<float*>(codes_ + RowBytes(dtype_, kKvBlockTokens * dim_));
  }

  DType dtype_;
  int64_t dim_;
  char* codes_;
};

}  // namespace lm

#endif  // LM_ENGINE_BACKEND_REFERENCE_KV_ACCESS_H_
