// The few things that differ between the two compilers of the arithmetic headers (*.cuh): nvcc
// makes kernels of them, g++ makes tests (tests/engine/backend/cuda_arithmetic_test.cc).
//
// Device code is compiled with -fmad=false: a product and a sum are two roundings unless written as
// fmaf, as everywhere in this tree.
#ifndef LM_ENGINE_BACKEND_CUDA_HOST_DEVICE_H_
#define LM_ENGINE_BACKEND_CUDA_HOST_DEVICE_H_

#include <cmath>
#include <cstdint>
#include <cstring>

#ifdef __CUDACC__
#include <cuda_fp16.h>
#define LM_HOST_DEVICE __host__ __device__ __forceinline__
#else
#include "engine/base/float16.h"
#define LM_HOST_DEVICE inline
#endif

namespace lm::cuda {

LM_HOST_DEVICE float BitsToFloat(uint32_t bits) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(bits);
#else
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
#endif
}

LM_HOST_DEVICE uint32_t FloatToBits(float value) {
#ifdef __CUDA_ARCH__
  return __float_as_uint(value);
#else
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
#endif
}

// binary16 -> F32, exact.
LM_HOST_DEVICE float LoadF16(uint16_t bits) {
#ifdef __CUDACC__
  return __half2float(__ushort_as_half(bits));
#else
  return HalfToFloat(bits);
#endif
}

// F32 -> binary16, to nearest even.
LM_HOST_DEVICE uint16_t StoreF16(float value) {
#ifdef __CUDACC__
  return __half_as_ushort(__float2half_rn(value));
#else
  return FloatToHalf(value);
#endif
}

// bfloat16 -> F32, exact.
LM_HOST_DEVICE float LoadBf16(uint16_t bits) { return BitsToFloat(uint32_t{bits} << 16); }

// F32 -> bfloat16, to nearest even; NaN stays NaN.
LM_HOST_DEVICE uint16_t StoreBf16(float value) {
  uint32_t bits = FloatToBits(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// sum + the dot product of four signed bytes with four signed bytes.
LM_HOST_DEVICE int32_t Dp4a(int32_t a, int32_t b, int32_t sum) {
#ifdef __CUDA_ARCH__
  return __dp4a(a, b, sum);
#else
  for (int shift = 0; shift < 32; shift += 8) {
    sum += static_cast<int8_t>(a >> shift) * static_cast<int8_t>(b >> shift);
  }
  return sum;
#endif
}

}  // namespace lm::cuda

#endif  // LM_ENGINE_BACKEND_CUDA_HOST_DEVICE_H_
