// MixHead for all heads of a row, sixteen values at a time (mix_head.h).
#ifndef LM_ENGINE_BACKEND_CPU_MIX_HEADS_H_
#define LM_ENGINE_BACKEND_CPU_MIX_HEADS_H_

#include <cstdint>
#include <cstring>

#include "engine/backend/cpu/transpose.h"
#include "engine/backend/mix_head.h"

namespace lm {

namespace mix_heads {

typedef float Four __attribute__((vector_size(16)));

inline void Mix(Four* a, Four* b) {
  const Four sum = *a + *b;
  *b = *a - *b;
  *a = sum;
}

// The first two turns are within a vector: between vectors, where the square is turned over.
inline void TurnOver(Four (&rows)[4]) {
  Lanes<uint32_t>::Vector bits[4];
  std::memcpy(bits, rows, sizeof(bits));
  Transpose(bits);
  std::memcpy(rows, bits, sizeof(bits));
}

// Values up to 8 apart.
inline void MixSixteen(float* x) {
  Four rows[4];
  std::memcpy(rows, x, sizeof(rows));
  TurnOver(rows);
  Mix(&rows[0], &rows[1]);
  Mix(&rows[2], &rows[3]);
  Mix(&rows[0], &rows[2]);
  Mix(&rows[1], &rows[3]);
  TurnOver(rows);
  Mix(&rows[0], &rows[1]);
  Mix(&rows[2], &rows[3]);
  Mix(&rows[0], &rows[2]);
  Mix(&rows[1], &rows[3]);
  std::memcpy(x, rows, sizeof(rows));
}

// `x` and `y` of n values, a multiple of 4.
inline void MixAll(int64_t n, float* x, float* y) {
  for (int64_t i = 0; i < n; i += 4) {
    Four a, b;
    std::memcpy(&a, x + i, sizeof(a));
    std::memcpy(&b, y + i, sizeof(b));
    Mix(&a, &b);
    std::memcpy(x + i, &a, sizeof(a));
    std::memcpy(y + i, &b, sizeof(b));
  }
}

}  // namespace mix_heads

// The heads of a row of `cols` values.
inline void MixHeads(int64_t head_dim, float scale, int64_t cols, float* row) {
  const int64_t run = MixedRun(head_dim);
  if (run < 16) {
    for (int64_t i = 0; i < cols; i += head_dim) MixHead(head_dim, scale, row + i);
    return;
  }
  for (int64_t first = 0; first < cols; first += run) {
    float* const x = row + first;
    for (int64_t i = 0; i < run; i += 16) mix_heads::MixSixteen(x + i);
    for (int64_t apart = 16; apart < run; apart *= 2) {
      for (int64_t i = 0; i < run; i += 2 * apart) mix_heads::MixAll(apart, x + i, x + i + apart);
    }
  }
  if (scale == 1) return;
  for (int64_t i = 0; i < cols; ++i) row[i] *= scale;
}

}  // namespace lm

#endif  // LM_ENGINE_BACKEND_CPU_MIX_HEADS_H_
