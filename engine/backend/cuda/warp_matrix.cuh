// What a warp does together: small matrix products on the tensor cores, and copies into shared
// memory that go on while others compute.
//
// Fragments, as the PTX ISA ("Warp-level matrix instructions") lays them out. A thread of lane l
// has g = l / 4 and t = l % 4:
//   A (16, 32) int8:  a[0] row g, columns 4t .. 4t+3; a[1] row g + 8; a[2], a[3] 16 columns on
//   B (32, 8) int8:   b[0] column g, rows 4t .. 4t+3; b[1] 16 rows on
//   A (16, 16) 16-bit:  a[0] row g, columns 2t, 2t+1; a[1] row g + 8; a[2], a[3] 8 columns on
//   B (16, 8) 16-bit:   b[0] column g, rows 2t, 2t+1; b[1] 8 rows on
//   C (16, 8):  c[0], c[1] row g, columns 2t, 2t+1; c[2], c[3] row g + 8
//
// (tests/engine/backend/cuda_on_host has its own of all these.)
#ifndef LM_ENGINE_BACKEND_CUDA_WARP_MATRIX_H_
#define LM_ENGINE_BACKEND_CUDA_WARP_MATRIX_H_

#include <cstdint>

namespace lm::cuda {

// c = A B, of int8, plus `start`.
__device__ __forceinline__ void MultiplyInt8(const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                                             int32_t start, int32_t (&c)[4]) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%10,%10,%10,%10};"
      : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(start));
}

// The same of 16 columns of A: a0 and a1 are a[0] and a[1], or a[2] and a[3].
__device__ __forceinline__ void MultiplyInt8Half(uint32_t a0, uint32_t a1, uint32_t b,
                                                 int32_t start, int32_t (&c)[4]) {
  asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
      "{%7,%7,%7,%7};"
      : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3])
      : "r"(a0), "r"(a1), "r"(b), "r"(start));
}

// c += A B, of binary16 (or bfloat16) with F32 sums.
template <bool kBf16>
__device__ __forceinline__ void Multiply16(const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                                           float (&c)[4]) {
  if constexpr (kBf16) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

// The four bytes of `low` and `high` that the nibbles of `chosen` number.
__device__ __forceinline__ uint32_t ChooseBytes(uint32_t low, uint32_t high, uint32_t chosen) {
  return __byte_perm(low, high, chosen);
}

// 2^x within two units of the last place, 0 where that is below the normal numbers.
__device__ __forceinline__ float Exp2Approximately(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// Two values as binary16, to nearest even, the first one in the lower half.
__device__ __forceinline__ uint32_t StoreTwoF16(float first, float second) {
  uint32_t word;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
  return word;
}

// Four int8 as binary16: the first two, the other two. (A byte below 0x64 is 1024 and that byte.)
__device__ __forceinline__ void LoadFourCodes(uint32_t codes, uint32_t* first, uint32_t* second) {
  constexpr uint32_t kBias = 0x64806480u;  // 1024 + 128
  const uint32_t biased = codes ^ 0x80808080u;
  asm("sub.f16x2 %0, %1, %2;"
      : "=r"(*first)
      : "r"(ChooseBytes(biased, 0x64646464u, 0x4140)), "r"(kBias));
  asm("sub.f16x2 %0, %1, %2;"
      : "=r"(*second)
      : "r"(ChooseBytes(biased, 0x64646464u, 0x4342)), "r"(kBias));
}

// Asks for the 128 bytes that an address is of to be in the second-level cache, which all writes
// pass, whoever makes them later.
__device__ __forceinline__ void PrefetchToL2(const void* from) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(from));
}

// The shared memory that a launch gives its thread blocks, aligned to 16 bytes.
__device__ __forceinline__ char* DynamicShared() {
  extern __shared__ uint4 dynamic_shared[];
  return reinterpret_cast<char*>(dynamic_shared);
}

// Begins to copy 16 aligned bytes to shared memory.
__device__ __forceinline__ void BeginCopy(void* shared, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                   static_cast<uint32_t>(__cvta_generic_to_shared(shared))),
               "l"(from)
               : "memory");
}
// Ends a group of copies, which may be empty.
__device__ __forceinline__ void EndCopyGroup() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Waits until all but the last kGroups groups of this thread have arrived. Others' have, behind a
// barrier.
template <int kGroups>
__device__ __forceinline__ void WaitForCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kGroups) : "memory");
}

}  // namespace lm::cuda

#endif  // LM_ENGINE_BACKEND_CUDA_WARP_MATRIX_H_
