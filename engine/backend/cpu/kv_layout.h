// The CPU's arrangement of the paged cache. Per block and KV head:
//   keys   [head_dim][kKvBlockTokens]: transposed, so that sixteen lanes score sixteen positions;
//   values [kKvBlockTokens][head_dim]: lanes are the values' columns;
// each with the tokens' scales behind where they are int8.
#ifndef LM_ENGINE_BACKEND_CPU_KV_LAYOUT_H_
#define LM_ENGINE_BACKEND_CPU_KV_LAYOUT_H_

#include <cstdint>

#include "engine/backend/backend.h"

namespace lm {

// The first byte of a block's keys or values of one head.
inline char* KvHead(const KvLayer& layer, void* data, int64_t block, int64_t head) {
  return static_cast<char*>(data) + block * layer.block_stride + head * layer.head_bytes();
}

// The tokens' scales behind the codes of one head. REQUIRES: the layer's type is kI8.
inline float* KvScales(const KvLayer& layer, char* head) {
  return reinterpret_cast<float*>(head + int64_t{kKvBlockTokens} * layer.head_dim);
}

}  // namespace lm

#endif  // LM_ENGINE_BACKEND_CPU_KV_LAYOUT_H_
