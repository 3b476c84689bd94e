#include <arm_neon.h>

#include <cstdint>

#include "engine/backend/cpu/peak_loops.h"

namespace lm {
namespace {

// Sixteen accumulators hide the latency of four multiply-add pipes.
constexpr int kAccumulators = 16;
constexpr int64_t kLoops = 1 << 19;

void Fma() {
  float32x4_t acc[kAccumulators], x = vdupq_n_f32(1e-9f), y = vdupq_n_f32(0.5f);
  for (auto& a : acc) a = x;
  for (int64_t i = 0; i < kLoops; ++i) {
#pragma GCC unroll 16
    for (auto& a : acc) asm volatile("fmla %0.4s, %1.4s, %2.4s" : "+w"(a) : "w"(x), "w"(y));
  }
}

__attribute__((target("arch=armv8.2-a+dotprod"))) void Dot() {
  int32x4_t acc[kAccumulators];
  int8x16_t x = vdupq_n_s8(3), y = vdupq_n_s8(1);
  for (auto& a : acc) a = vdupq_n_s32(0);
  for (int64_t i = 0; i < kLoops; ++i) {
#pragma GCC unroll 16
    for (auto& a : acc) asm volatile("sdot %0.4s, %1.16b, %2.16b" : "+w"(a) : "w"(y), "w"(x));
  }
}

__attribute__((target("arch=armv8.2-a+i8mm"))) void MatrixProduct() {
  int32x4_t acc[kAccumulators];
  int8x16_t x = vdupq_n_s8(3), y = vdupq_n_s8(1);
  for (auto& a : acc) a = vdupq_n_s32(0);
  for (int64_t i = 0; i < kLoops; ++i) {
#pragma GCC unroll 16
    for (auto& a : acc) asm volatile("usmmla %0.4s, %1.16b, %2.16b" : "+w"(a) : "w"(y), "w"(x));
  }
}

// Without dot products sixteen bytes take two multiplies to 16 bits, an add of pairs and one more.
void Multiply() {
  constexpr int kSums = 8;
  int32x4_t acc[kSums];
  int8x16_t x = vdupq_n_s8(3), y = vdupq_n_s8(1);
  for (auto& a : acc) a = vdupq_n_s32(0);
  for (int64_t i = 0; i < kLoops; ++i) {
#pragma GCC unroll 8
    for (auto& a : acc) {
      int16x8_t low, high;
      asm volatile(
          "smull %1.8h, %3.8b, %4.8b\n\tsmull2 %2.8h, %3.16b, %4.16b\n\t"
          "addp %1.8h, %1.8h, %2.8h\n\tsadalp %0.4s, %1.8h"
          : "+w"(a), "=&w"(low), "=&w"(high)
          : "w"(y), "w"(x));
    }
  }
}

}  // namespace

PeakLoops GetPeakLoops(Isa isa) {
  const PeakLoop fma = {Fma, kLoops * kAccumulators * 4 * 2.0};
  switch (isa) {
    case Isa::kNeon:
      return {fma, {Multiply, kLoops * 8 * 16 * 2.0}};
    case Isa::kNeonDotprod:
      return {fma, {Dot, kLoops * kAccumulators * 16 * 2.0}};
    case Isa::kNeonI8mm:
      return {fma, {MatrixProduct, kLoops * kAccumulators * 32 * 2.0}};
    default:
      return {};
  }
}

}  // namespace lm
