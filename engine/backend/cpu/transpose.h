// Squares of a matrix turned over in registers: how the rows of a file become columns side by side.
#ifndef LM_ENGINE_BACKEND_CPU_TRANSPOSE_H_
#define LM_ENGINE_BACKEND_CPU_TRANSPOSE_H_

#include <cstdint>
#include <cstring>

namespace lm {

// 16 bytes.
template <typename T>
struct Lanes {
  static constexpr int kCount = 16 / sizeof(T);
  typedef T Vector __attribute__((vector_size(16)));

  static Vector Load(const void* from) {
    Vector v;
    std::memcpy(&v, from, sizeof(v));
    return v;
  }
  static void Store(Vector v, void* to) { std::memcpy(to, &v, sizeof(v)); }
};

// rows[i][j] and rows[j][i] change places.
inline void Transpose(Lanes<uint32_t>::Vector (&rows)[4]) {
  const auto a = __builtin_shufflevector(rows[0], rows[1], 0, 4, 1, 5);
  const auto b = __builtin_shufflevector(rows[2], rows[3], 0, 4, 1, 5);
  const auto c = __builtin_shufflevector(rows[0], rows[1], 2, 6, 3, 7);
  const auto d = __builtin_shufflevector(rows[2], rows[3], 2, 6, 3, 7);
  rows[0] = __builtin_shufflevector(a, b, 0, 1, 4, 5);
  rows[1] = __builtin_shufflevector(a, b, 2, 3, 6, 7);
  rows[2] = __builtin_shufflevector(c, d, 0, 1, 4, 5);
  rows[3] = __builtin_shufflevector(c, d, 2, 3, 6, 7);
}

// In three rounds, each of which sets rows i and i + 4 side by side, value by value.
inline void Transpose(Lanes<uint16_t>::Vector (&rows)[8]) {
  for (int round = 0; round < 3; ++round) {
    Lanes<uint16_t>::Vector next[8];
    for (int i = 0; i < 4; ++i) {
      next[2 * i] = __builtin_shufflevector(rows[i], rows[i + 4], 0, 8, 1, 9, 2, 10, 3, 11);
      next[2 * i + 1] = __builtin_shufflevector(rows[i], rows[i + 4], 4, 12, 5, 13, 6, 14, 7, 15);
    }
    for (int i = 0; i < 8; ++i) rows[i] = next[i];
  }
}

}  // namespace lm

#endif  // LM_ENGINE_BACKEND_CPU_TRANSPOSE_H_
