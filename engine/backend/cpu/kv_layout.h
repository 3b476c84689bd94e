// The CPU's arrangement of the paged cache. Per block and KV head:
//   keys   [key_dim][kKvBlockTokens]: transposed, so that sixteen lanes score sixteen positions;
//   values [kKvBlockTokens][value_dim]: lanes are the values' columns;
// those of int16 in pairs of what is summed: keys [key_dim / 2][kKvBlockTokens][2], an odd last one
// with 0 beside it, values [kKvBlockTokens / 2][value_dim][2]. The tokens' scales are behind codes.
#ifndef LM_ENGINE_BACKEND_CPU_KV_LAYOUT_H_
#define LM_ENGINE_BACKEND_CPU_KV_LAYOUT_H_

#include <cstdint>

#include "engine/backend/backend.h"

namespace lm {

// The first byte of a block's keys or values of one head.
inline char* KeysOfHead(const KvLayer& layer, int64_t block, int64_t head) {
  return static_cast<char*>(layer.keys) + block * layer.block_stride +
         head * layer.HeadBytes(layer.key_dim);
}
inline char* ValuesOfHead(const KvLayer& layer, int64_t block, int64_t head) {
  return static_cast<char*>(layer.values) + block * layer.block_stride +
         head * layer.HeadBytes(layer.value_dim);
}

// The tokens' scales behind the codes of one head, of key_dim or value_dim. REQUIRES: the layer's
// type has scales.
inline float* KvScales(const KvLayer& layer, char* head, int64_t dim) {
  return reinterpret_cast<float*>(head + layer.HeadBytes(dim)) - kKvBlockTokens;
}

}  // namespace lm

#endif  // LM_ENGINE_BACKEND_CPU_KV_LAYOUT_H_
