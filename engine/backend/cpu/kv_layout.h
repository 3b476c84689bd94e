// The CPU's arrangement of the paged cache. Per block and KV head:
//   keys   [head_dim][kKvBlockTokens]: transposed, so that sixteen lanes score sixteen positions;
//   values [kKvBlockTokens][head_dim]: lanes are the values' columns.
#ifndef LM_ENGINE_BACKEND_CPU_KV_LAYOUT_H_
#define LM_ENGINE_BACKEND_CPU_KV_LAYOUT_H_

#include <cstdint>

#include "engine/backend/backend.h"

namespace lm {

// The first byte of a block's keys or values of one head.
inline char* KvHead(const KvLayer& layer, void* data, int64_t block, int64_t head) {
  int64_t values = int64_t{kKvBlockTokens} * layer.head_dim;
  return static_cast<char*>(data) + RowBytes(layer.dtype, (block * layer.kv_heads + head) * values);
}

}  // namespace lm

#endif  // LM_ENGINE_BACKEND_CPU_KV_LAYOUT_H_
