// Peak loops of x86, in assembler: the compiler would leave out what nothing reads.
#include <immintrin.h>

#include <cstdint>

#include "engine/backend/cpu/peak_loops.h"

namespace lm {
namespace {

// Twelve accumulators hide the latency of the two multiply-add ports; the empty asm keeps them.
constexpr int kAccumulators = 12;
constexpr int64_t kLoops = 1 << 20;

__attribute__((target("avx512f"))) void Fma512() {
  __m512 acc[kAccumulators], x = _mm512_set1_ps(1e-9f), y = _mm512_set1_ps(0.5f);
  for (auto& a : acc) a = x;
  for (int64_t i = 0; i < kLoops; ++i) {
#pragma GCC unroll 12
    for (auto& a : acc) asm volatile("vfmadd231ps %1, %2, %0" : "+v"(a) : "v"(x), "v"(y));
  }
}

__attribute__((target("avx2,fma"))) void Fma256() {
  __m256 acc[kAccumulators], x = _mm256_set1_ps(1e-9f), y = _mm256_set1_ps(0.5f);
  for (auto& a : acc) a = x;
  for (int64_t i = 0; i < kLoops; ++i) {
#pragma GCC unroll 12
    for (auto& a : acc) asm volatile("vfmadd231ps %1, %2, %0" : "+x"(a) : "x"(x), "x"(y));
  }
}

__attribute__((target("avx512f,avx512vnni"))) void Dot512() {
  __m512i acc[kAccumulators], x = _mm512_set1_epi8(3), y = _mm512_set1_epi8(1);
  for (auto& a : acc) a = _mm512_setzero_si512();
  for (int64_t i = 0; i < kLoops; ++i) {
#pragma GCC unroll 12
    for (auto& a : acc) asm volatile("vpdpbusd %1, %2, %0" : "+v"(a) : "v"(y), "v"(x));
  }
}

__attribute__((target("avx2,avxvnni"))) void DotVnni256() {
  __m256i acc[kAccumulators], x = _mm256_set1_epi8(3), y = _mm256_set1_epi8(1);
  for (auto& a : acc) a = _mm256_setzero_si256();
  for (int64_t i = 0; i < kLoops; ++i) {
#pragma GCC unroll 12
    for (auto& a : acc) asm volatile("%{vex%} vpdpbusd %1, %2, %0" : "+x"(a) : "x"(y), "x"(x));
  }
}

// Without VNNI a product of 32 bytes takes a multiply to 16 bits, a multiply to 32 and an add.
__attribute__((target("avx2"))) void Dot256() {
  constexpr int kSums = 6;
  __m256i acc[kSums], x = _mm256_set1_epi8(3), y = _mm256_set1_epi8(1);
  __m256i ones = _mm256_set1_epi16(1);
  for (auto& a : acc) a = _mm256_setzero_si256();
  for (int64_t i = 0; i < kLoops; ++i) {
#pragma GCC unroll 6
    for (auto& a : acc) {
      __m256i product;
      asm volatile("vpmaddubsw %2, %3, %1\n\tvpmaddwd %4, %1, %1\n\tvpaddd %1, %0, %0"
                   : "+x"(a), "=&x"(product)
                   : "x"(y), "x"(x), "x"(ones));
    }
  }
}

}  // namespace

PeakLoops GetPeakLoops(Isa isa) {
  switch (isa) {
    case Isa::kAvx2:
      return {{Fma256, kLoops * kAccumulators * 8 * 2.0}, {Dot256, kLoops * 6 * 32 * 2.0}};
    case Isa::kAvxVnni:
      return {{Fma256, kLoops * kAccumulators * 8 * 2.0},
              {DotVnni256, kLoops * kAccumulators * 32 * 2.0}};
    case Isa::kAvx512Vnni:
      return {{Fma512, kLoops * kAccumulators * 16 * 2.0},
              {Dot512, kLoops * kAccumulators * 64 * 2.0}};
    default:
      return {};
  }
}

}  // namespace lm
