// What both kinds of products share: tiles of tokens, and how a tile of results is stored.
#ifndef LM_ENGINE_BACKEND_CPU_MATMUL_TILES_H_
#define LM_ENGINE_BACKEND_CPU_MATMUL_TILES_H_

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "engine/backend/backend.h"
#include "engine/tensor/tensor.h"

namespace lm {

// Bytes of weights below which one thread is faster than two.
inline constexpr int64_t kBytesWorthSharing = 32 * 1024;

// Tokens in tiles of at most `most`, as even as can be. Which tile a token stands in does not
// change its sums: that is the kernels' promise.
struct Tiles {
  Tiles(int64_t tokens, int64_t most) : tokens(tokens), count((tokens + most - 1) / most) {}
  int64_t begin(int64_t i) const { return tokens * i / count; }
  int size(int64_t i) const { return static_cast<int>(begin(i + 1) - begin(i)); }
  // The tile of token t.
  int64_t of(int64_t t) const { return ((t + 1) * count - 1) / tokens; }
  int64_t tokens;
  int64_t count;
};

// Multiplies the sums [tokens][width] of the columns from `first` on by their rows' scales, adds
// the bias, and stores those that exist, or adds them to what is there.
inline void StoreTile(float* sums, int64_t width, int64_t first, int64_t first_token,
                      int64_t tokens, Tensor scales, Tensor bias, ProductResult result,
                      Tensor out) {
  int64_t count = std::min<int64_t>(width, out.cols - first);
  if (!scales.empty()) {
    const float* factors = scales.row<float>(0) + first;
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t i = 0; i < count; ++i) sums[t * width + i] *= factors[i];
    }
  }
  const float* b = bias.empty() ? nullptr : bias.row<float>(0) + first;
  for (int64_t t = 0; t < tokens; ++t) {
    float* to = out.row<float>(first_token + t) + first;
    const float* from = sums + t * width;
    if (result == ProductResult::kIsAdded && b != nullptr) {
      for (int64_t i = 0; i < count; ++i) to[i] += from[i] + b[i];
    } else if (result == ProductResult::kIsAdded) {
      for (int64_t i = 0; i < count; ++i) to[i] += from[i];
    } else if (b != nullptr) {
      for (int64_t i = 0; i < count; ++i) to[i] = from[i] + b[i];
    } else {
      std::memcpy(to, from, count * sizeof(float));
    }
  }
}

}  // namespace lm

#endif  // LM_ENGINE_BACKEND_CPU_MATMUL_TILES_H_
