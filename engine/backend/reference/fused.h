// LM_FUSES: before a function that is little but std::fma, which is a call of the C library where a
// processor may have no such instruction. With it the function is there twice, and the processor's
// is found when the program is loaded. The bits are the same.
// AddProducts: several sums of products at once, each in its own order: by itself each fma would
// wait for the one before.
#ifndef LM_ENGINE_BACKEND_REFERENCE_FUSED_H_
#define LM_ENGINE_BACKEND_REFERENCE_FUSED_H_

#include <cmath>
#include <cstdint>

// (Sanitizers' own code is not there yet when functions are found.)
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define LM_FUSES __attribute__((target_clones("fma", "default")))
#else
#define LM_FUSES
#endif

namespace lm {

constexpr int kSumsAtOnce = 8;

// sums[j] += x[i] * y[j * stride + i], i = 0, 1, ..., n - 1. To be called by what LM_FUSES.
// REQUIRES: y has kSumsAtOnce rows, of however many the sums are wanted.
inline __attribute__((always_inline)) void AddProducts(const float* x, const float* y,
                                                       int64_t stride, int64_t n,
                                                       float (&sums)[kSumsAtOnce]) {
  for (int64_t i = 0; i < n; ++i) {
    for (int j = 0; j < kSumsAtOnce; ++j) sums[j] = std::fma(x[i], y[j * stride + i], sums[j]);
  }
}

}  // namespace lm

#endif  // LM_ENGINE_BACKEND_REFERENCE_FUSED_H_
