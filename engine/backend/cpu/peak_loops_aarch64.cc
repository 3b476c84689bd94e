// Peak loops of ARM64, in assembler: the compiler would leave out what nothing reads.
#include <arm_neon.h>

#include <cstdint>

#include "engine/backend/cpu/peak_loops.h"

namespace lm {
namespace {

// Sixteen sums hide the latency of four multiply-add pipes.
constexpr int kSums = 16;
constexpr int64_t kLoops = 1 << 19;

// One multiply-add of the lanes of 16 bytes each, and how many it makes.
struct Fma {
  static constexpr int kProducts = 4;
  static void Add(int8x16_t& sum, int8x16_t x) {
    asm volatile("fmla %0.4s, %1.4s, %1.4s" : "+w"(sum) : "w"(x));
  }
};

struct Dot {
  static constexpr int kProducts = 16;
  static void Add(int8x16_t& sum, int8x16_t x) {
    asm volatile(".arch armv8.2-a+dotprod\n\tsdot %0.4s, %1.16b, %1.16b" : "+w"(sum) : "w"(x));
  }
};

struct MatrixProduct {
  static constexpr int kProducts = 32;
  static void Add(int8x16_t& sum, int8x16_t x) {
    asm volatile(".arch armv8.2-a+i8mm\n\tusmmla %0.4s, %1.16b, %1.16b" : "+w"(sum) : "w"(x));
  }
};

// Without dot products: two multiplies to 16 bits, an add of pairs and one more.
struct Multiply {
  static constexpr int kProducts = 16;
  static void Add(int8x16_t& sum, int8x16_t x) {
    int8x16_t low, high;
    asm volatile(
        "smull %1.8h, %3.8b, %3.8b\n\tsmull2 %2.8h, %3.16b, %3.16b\n\t"
        "addp %1.8h, %1.8h, %2.8h\n\tsadalp %0.4s, %1.8h"
        : "+w"(sum), "=&w"(low), "=&w"(high)
        : "w"(x));
  }
};

template <typename Instruction>
void Repeat() {
  const int8x16_t x = vdupq_n_s8(61);  // four of them are the float 0.046: all sums stay normal
  int8x16_t sums[kSums];
  for (int8x16_t& sum : sums) sum = x;
  for (int64_t i = 0; i < kLoops; ++i) {
#pragma GCC unroll 16
    for (int8x16_t& sum : sums) Instruction::Add(sum, x);
  }
}

template <typename Instruction>
constexpr PeakLoop LoopOf() {
  return {Repeat<Instruction>, kLoops * kSums * Instruction::kProducts * 2.0};
}

}  // namespace

PeakLoops GetPeakLoops(Isa isa) {
  switch (isa) {
    case Isa::kNeon:
      return {LoopOf<Fma>(), LoopOf<Multiply>()};
    case Isa::kNeonDotprod:
      return {LoopOf<Fma>(), LoopOf<Dot>()};
    case Isa::kNeonI8mm:
      return {LoopOf<Fma>(), LoopOf<MatrixProduct>()};
    default:
      return {};
  }
}

}  // namespace lm
