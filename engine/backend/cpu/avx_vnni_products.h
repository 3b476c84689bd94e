// Products of bytes by AVX-VNNI: vpdpbusd on registers of 32 bytes, on processors without AVX-512.
#ifndef LM_ENGINE_BACKEND_CPU_AVX_VNNI_PRODUCTS_H_
#define LM_ENGINE_BACKEND_CPU_AVX_VNNI_PRODUCTS_H_

#include "engine/backend/cpu/simd_avx2.h"

namespace lm {
namespace {

// Unsigned weights are taken as they are: codes of signed bytes stay biased by 128.
constexpr bool kBiasedBytes = true;

// As in simd_avx512.h. Without {vex} the assembler would choose AVX-512's form.
template <bool kSignedBytes>
inline void DotAdd(I32x16* acc, Bytes64 w, Bytes64 x) {
  asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(acc->a) : "x"(w.a), "x"(x.a));
  asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(acc->b) : "x"(w.b), "x"(x.b));
}

inline void DotPairs(I32x16* acc, Pairs16 w, PairInAll x) {
  asm("%{vex%} vpdpwssd %2, %1, %0" : "+x"(acc->a) : "x"(w.a), "x"(x.half));
  asm("%{vex%} vpdpwssd %2, %1, %0" : "+x"(acc->b) : "x"(w.b), "x"(x.half));
}

}  // namespace
}  // namespace lm

#endif  // LM_ENGINE_BACKEND_CPU_AVX_VNNI_PRODUCTS_H_
