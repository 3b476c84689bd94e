// The definition of what happens to queries and keys of a cache of kI8 before these become codes:
// the Walsh-Hadamard transform, so that channels that are far greater than all others (as biases of
// keys make them) are spread over many, and one scale serves them all. It turns both alike: q . k
// is what it was. Kernels have vector forms of their own and must give the same bits.
#ifndef LM_ENGINE_BACKEND_MIX_HEAD_H_
#define LM_ENGINE_BACKEND_MIX_HEAD_H_

#include <cstdint>

namespace lm {

// How many values of a head are mixed with each other: the greatest power of two that divides its
// length.
constexpr int64_t MixedRun(int64_t dim) { return dim & -dim; }

// What mixed queries are multiplied by: with it q . k of mixed heads is that of the heads.
constexpr float MixedQueryScale(int64_t dim) { return 1.0f / static_cast<float>(MixedRun(dim)); }

// Mixes a head, in place: of values `apart` from each other, 1, 2, 4 ... MixedRun / 2, (a, b) ->
// (a + b, a - b), in F32; then each is multiplied by `scale`.
inline void MixHead(int64_t dim, float scale, float* head) {
  const int64_t run = MixedRun(dim);
  for (int64_t apart = 1; apart < run; apart *= 2) {
    for (int64_t first = 0; first < dim; first += 2 * apart) {
      for (int64_t i = first; i < first + apart; ++i) {
        const float a = head[i], b = head[i + apart];
        head[i] = a + b;
        head[i + apart] = a - b;
      }
    }
  }
  for (int64_t i = 0; i < dim; ++i) head[i] *= scale;
}

}  // namespace lm

#endif  // LM_ENGINE_BACKEND_MIX_HEAD_H_
