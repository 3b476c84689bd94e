// Sixteen lanes on AVX-512 with VNNI. Included by kernels_avx512.cc only: everything here is in an
// unnamed namespace, so that no other file's code can pick up these instructions.
//
// The simd_*.h offer the same names, and the *_kernel.h files are written once in their
// terms.
#ifndef LM_ENGINE_BACKEND_CPU_SIMD_AVX512_H_
#define LM_ENGINE_BACKEND_CPU_SIMD_AVX512_H_

#include <immintrin.h>

#include <cstdint>

namespace lm {
namespace {

// Tile sizes that fit 32 registers: accumulators of float products, with how many panels of 16
// output columns they are best used, and tokens x panels of quantised ones.
constexpr int kFloatAccumulators = 24;
constexpr int kFloatPanels = 4;
constexpr bool kFewRegisters = false;
constexpr int kTilePanels = 2;
constexpr int kPairTokens = 0;
constexpr int kQuantizedTokens = 7;
constexpr int kPackedTokens = 4;
constexpr int kMostPacked = 16;
constexpr int kMostPackedHalfScale = 16;
constexpr int kStreams = 4;
constexpr int kStreamTokens = 2;
constexpr int kHalfScaleTokens = 4;  // two running sums a token
// vpdpbusd takes unsigned weights as they are: codes of signed bytes stay biased by 128.
constexpr bool kBiasedBytes = true;

struct F32x16 {
  __m512 v;
  static F32x16 Zero() { return {_mm512_setzero_ps()}; }
  static F32x16 Set(float x) { return {_mm512_set1_ps(x)}; }
  static F32x16 Load(const float* p) { return {_mm512_loadu_ps(p)}; }
  static F32x16 LoadHalf(const uint16_t* p) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
  }
  static F32x16 LoadBf16(const uint16_t* p) {
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(wide, 16))};
  }
  static F32x16 LoadI8(const int8_t* p) {
    __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes))};
  }
  // The first n lanes; the others are `fill`.
  static F32x16 LoadN(const float* p, int n, float fill) {
    return {_mm512_mask_loadu_ps(_mm512_set1_ps(fill), Mask(n), p)};
  }
  void Store(float* p) const { _mm512_storeu_ps(p, v); }
  void StoreN(float* p, int n) const { _mm512_mask_storeu_ps(p, Mask(n), v); }
  void StoreHalf(uint16_t* p) const {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                        _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
  }
  static __mmask16 Mask(int n) { return static_cast<__mmask16>((1u << n) - 1); }
};

inline F32x16 operator+(F32x16 a, F32x16 b) { return {_mm512_add_ps(a.v, b.v)}; }
inline F32x16 operator-(F32x16 a, F32x16 b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline F32x16 operator*(F32x16 a, F32x16 b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline F32x16 operator/(F32x16 a, F32x16 b) { return {_mm512_div_ps(a.v, b.v)}; }
// b where either is NaN.
inline F32x16 Max(F32x16 a, F32x16 b) { return {_mm512_max_ps(a.v, b.v)}; }
inline F32x16 Min(F32x16 a, F32x16 b) { return {_mm512_min_ps(a.v, b.v)}; }
// a * b + c, rounded once.
inline F32x16 Fma(F32x16 a, F32x16 b, F32x16 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
// a * b + c where the product is exact.
inline F32x16 MulAdd(F32x16 a, F32x16 b, F32x16 c) { return Fma(a, b, c); }
inline F32x16 Round(F32x16 a) {
  return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
// a * 2^n for whole n in [-126, 127].
inline F32x16 ScaleByPowerOf2(F32x16 a, F32x16 n) { return {_mm512_scalef_ps(a.v, n.v)}; }
// `a` where x >= limit, 0 elsewhere; a too where x is NaN.
inline F32x16 ZeroBelow(F32x16 a, F32x16 x, float limit) {
  return {_mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x.v, _mm512_set1_ps(limit), _CMP_NLT_UQ), a.v)};
}

inline float ReduceSum(F32x16 a) {
  __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

inline float ReduceMax(F32x16 a) { return _mm512_reduce_max_ps(a.v); }

struct I32x16 {
  __m512i v;
  static I32x16 Set(int32_t x) { return {_mm512_set1_epi32(x)}; }
  F32x16 ToFloat() const { return {_mm512_cvtepi32_ps(v)}; }
};

// Four bytes to each of the 16 lanes.
struct Bytes64 {
  __m512i v;
  static Bytes64 Load(const uint8_t* p) { return {_mm512_loadu_si512(p)}; }
  // The four bytes at p in every lane.
  static Bytes64 Broadcast4(const int8_t* p) {
    int32_t four;
    __builtin_memcpy(&four, p, 4);
    return {_mm512_set1_epi32(four)};
  }
  void Store(uint8_t* p) const { _mm512_storeu_si512(p, v); }
};

// (each byte >> shift) & mask; REQUIRES: mask < 1 << (8 - shift).
inline Bytes64 Extract(Bytes64 a, int shift, int mask) {
  __m512i bits = _mm512_set1_epi8(static_cast<char>(mask));
  return {_mm512_and_si512(_mm512_srli_epi16(a.v, shift), bits)};
}
// low | high << shift; REQUIRES: no bit leaves its byte.
inline Bytes64 Combine(Bytes64 low, Bytes64 high, int shift) {
  return {_mm512_or_si512(low.v, _mm512_slli_epi16(high.v, shift))};
}
// table[a] for each byte a < 16.
inline Bytes64 Lookup(const uint8_t* table, Bytes64 a) {
  __m512i lanes = _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
  return {_mm512_shuffle_epi8(lanes, a.v)};
}

// acc + the sum of each lane's four products of unsigned weights and signed x. As assembly: gcc 12
// copies the accumulator around the intrinsic, which costs half of the peak.
template <bool kSignedBytes>
inline void DotAdd(I32x16* acc, Bytes64 w, Bytes64 x) {
  asm("vpdpbusd %2, %1, %0" : "+v"(acc->v) : "v"(w.v), "v"(x.v));
}

// Two int16 to each of the 16 lanes.
struct Pairs16 {
  __m512i v;
  static Pairs16 Load(const void* p) { return {_mm512_loadu_si512(p)}; }
};
// The two int16 at p in every lane.
struct PairInAll {
  __m512i v;
  explicit PairInAll(const int16_t* p) {
    int32_t pair;
    __builtin_memcpy(&pair, p, sizeof(pair));
    v = _mm512_set1_epi32(pair);
  }
};
// acc + the sum of each lane's two products. As assembly for the same reason.
inline void DotPairs(I32x16* acc, Pairs16 w, PairInAll x) {
  asm("vpdpwssd %2, %1, %0" : "+v"(acc->v) : "v"(w.v), "v"(x.v));
}

// 32 activations, for their quantisation.
struct ActivationVector {
  __m512 a, b;
  explicit ActivationVector(const float* x) : a(_mm512_loadu_ps(x)), b(_mm512_loadu_ps(x + 16)) {}
  // The largest magnitude, as bits: NaN above infinity above the rest.
  uint32_t MaxBits() const {
    __m512i mask = _mm512_set1_epi32(0x7fffffff);
    return _mm512_reduce_max_epu32(
        _mm512_max_epu32(_mm512_and_si512(_mm512_castps_si512(a), mask),
                         _mm512_and_si512(_mm512_castps_si512(b), mask)));
  }
  // Stores round-half-even(x * factor) and the sums of both halves.
  void Quantize(float factor, int8_t* q, int32_t* sums) const {
    __m512 f = _mm512_set1_ps(factor);
    __m512i low = _mm512_cvtps_epi32(_mm512_mul_ps(a, f));
    __m512i high = _mm512_cvtps_epi32(_mm512_mul_ps(b, f));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(q), _mm512_cvtepi32_epi8(low));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(q + 16), _mm512_cvtepi32_epi8(high));
    sums[0] = _mm512_reduce_add_epi32(low);
    sums[1] = _mm512_reduce_add_epi32(high);
  }
  // Stores round-half-even(x * factor).
  void QuantizeTo16(float factor, int16_t* q) const {
    auto store = [factor](__m512 x, int16_t* to) {
      const __m512i n = _mm512_cvtps_epi32(_mm512_mul_ps(x, _mm512_set1_ps(factor)));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi32_epi16(n));
    };
    store(a, q);
    store(b, q + 16);
  }
};

}  // namespace
}  // namespace lm

#endif  // LM_ENGINE_BACKEND_CPU_SIMD_AVX512_H_
