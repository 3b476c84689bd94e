// Sixteen lanes on AVX2 + FMA + F16C, as two registers of eight. See simd_avx512.h for what each
// function promises.
#ifndef LM_ENGINE_BACKEND_CPU_SIMD_AVX2_H_
#define LM_ENGINE_BACKEND_CPU_SIMD_AVX2_H_

#include <immintrin.h>

#include <cstdint>

namespace lm {
namespace {

constexpr int kFloatAccumulators = 6;
constexpr int kFloatPanels = 1;
constexpr bool kFewRegisters = true;
constexpr int kTilePanels = 1;
constexpr int kPairTokens = 2;
constexpr int kQuantizedTokens = 4;
constexpr int kPackedTokens = 2;
constexpr int kMostPacked = 8;
constexpr int kMostPackedHalfScale = 4;
constexpr int kStreams = 1;
constexpr int kStreamTokens = 0;
constexpr int kHalfScaleTokens = 4;

struct F32x16 {
  __m256 a, b;
  static F32x16 Zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  static F32x16 Set(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
  static F32x16 Load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
  static F32x16 LoadHalf(const uint16_t* p) {
    const __m128i* eight = reinterpret_cast<const __m128i*>(p);
    return {_mm256_cvtph_ps(_mm_loadu_si128(eight)), _mm256_cvtph_ps(_mm_loadu_si128(eight + 1))};
  }
  static F32x16 LoadBf16(const uint16_t* p) {
    auto widen = [](const uint16_t* q) {
      __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(q)));
      return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
    };
    return {widen(p), widen(p + 8)};
  }
  static F32x16 LoadI8(const int8_t* p) {
    auto widen = [](const int8_t* q) {
      __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(q));
      return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
    };
    return {widen(p), widen(p + 8)};
  }
  static F32x16 LoadN(const float* p, int n, float fill) {
    __m256i low = Mask(n), high = Mask(n - 8);
    __m256 other = _mm256_set1_ps(fill);
    __m256 first = _mm256_maskload_ps(p, low), second = _mm256_maskload_ps(p + 8, high);
    return {_mm256_blendv_ps(other, first, _mm256_castsi256_ps(low)),
            _mm256_blendv_ps(other, second, _mm256_castsi256_ps(high))};
  }
  void Store(float* p) const {
    _mm256_storeu_ps(p, a);
    _mm256_storeu_ps(p + 8, b);
  }
  void StoreN(float* p, int n) const {
    _mm256_maskstore_ps(p, Mask(n), a);
    _mm256_maskstore_ps(p + 8, Mask(n - 8), b);
  }
  void StoreHalf(uint16_t* p) const {
    __m128i* eight = reinterpret_cast<__m128i*>(p);
    _mm_storeu_si128(eight, _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128(eight + 1, _mm256_cvtps_ph(b, _MM_FROUND_TO_NEAREST_INT));
  }
  // The lanes i < n of eight.
  static __m256i Mask(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
};

inline F32x16 operator+(F32x16 x, F32x16 y) {
  return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)};
}
inline F32x16 operator-(F32x16 x, F32x16 y) {
  return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)};
}
inline F32x16 operator*(F32x16 x, F32x16 y) {
  return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)};
}
inline F32x16 operator/(F32x16 x, F32x16 y) {
  return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)};
}
inline F32x16 Max(F32x16 x, F32x16 y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
inline F32x16 Min(F32x16 x, F32x16 y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
inline F32x16 Fma(F32x16 x, F32x16 y, F32x16 z) {
  return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
inline F32x16 MulAdd(F32x16 x, F32x16 y, F32x16 z) { return Fma(x, y, z); }
inline F32x16 Round(F32x16 x) {
  constexpr int kMode = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_round_ps(x.a, kMode), _mm256_round_ps(x.b, kMode)};
}
inline F32x16 ScaleByPowerOf2(F32x16 x, F32x16 n) {
  auto power = [](__m256 exponent) {
    __m256i biased = _mm256_add_epi32(_mm256_cvtps_epi32(exponent), _mm256_set1_epi32(127));
    return _mm256_castsi256_ps(_mm256_slli_epi32(biased, 23));
  };
  return x * F32x16{power(n.a), power(n.b)};
}
inline F32x16 ZeroBelow(F32x16 y, F32x16 x, float limit) {
  __m256 least = _mm256_set1_ps(limit);
  return {_mm256_and_ps(y.a, _mm256_cmp_ps(x.a, least, _CMP_NLT_UQ)),
          _mm256_and_ps(y.b, _mm256_cmp_ps(x.b, least, _CMP_NLT_UQ))};
}

inline float ReduceSum(F32x16 x) {
  __m256 eight = _mm256_add_ps(x.a, x.b);
  __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

inline float ReduceMax(F32x16 x) {
  __m256 eight = _mm256_max_ps(x.a, x.b);
  __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}

struct I32x16 {
  __m256i a, b;
  static I32x16 Set(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
  F32x16 ToFloat() const { return {_mm256_cvtepi32_ps(a), _mm256_cvtepi32_ps(b)}; }
};

struct Bytes64 {
  __m256i a, b;
  static Bytes64 Load(const uint8_t* p) {
    const __m256i* half = reinterpret_cast<const __m256i*>(p);
    return {_mm256_loadu_si256(half), _mm256_loadu_si256(half + 1)};
  }
  static Bytes64 Broadcast4(const int8_t* p) {
    int32_t four;
    __builtin_memcpy(&four, p, 4);
    return {_mm256_set1_epi32(four), _mm256_set1_epi32(four)};
  }
  void Store(uint8_t* p) const {
    __m256i* half = reinterpret_cast<__m256i*>(p);
    _mm256_storeu_si256(half, a);
    _mm256_storeu_si256(half + 1, b);
  }
};

inline Bytes64 Extract(Bytes64 x, int shift, int mask) {
  __m256i bits = _mm256_set1_epi8(static_cast<char>(mask));
  return {_mm256_and_si256(_mm256_srli_epi16(x.a, shift), bits),
          _mm256_and_si256(_mm256_srli_epi16(x.b, shift), bits)};
}
inline Bytes64 Combine(Bytes64 low, Bytes64 high, int shift) {
  return {_mm256_or_si256(low.a, _mm256_slli_epi16(high.a, shift)),
          _mm256_or_si256(low.b, _mm256_slli_epi16(high.b, shift))};
}
inline Bytes64 Lookup(const uint8_t* table, Bytes64 x) {
  __m256i lanes =
      _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
  return {_mm256_shuffle_epi8(lanes, x.a), _mm256_shuffle_epi8(lanes, x.b)};
}

struct Pairs16 {
  __m256i a, b;
  static Pairs16 Load(const void* p) {
    const __m256i* half = static_cast<const __m256i*>(p);
    return {_mm256_loadu_si256(half), _mm256_loadu_si256(half + 1)};
  }
};
struct PairInAll {
  __m256i half;
  explicit PairInAll(const int16_t* p) {
    int32_t pair;
    __builtin_memcpy(&pair, p, sizeof(pair));
    half = _mm256_set1_epi32(pair);
  }
};

struct ActivationVector {
  __m256 v[4];
  explicit ActivationVector(const float* x) {
    for (int i = 0; i < 4; ++i) v[i] = _mm256_loadu_ps(x + 8 * i);
  }
  uint32_t MaxBits() const {
    __m256i mask = _mm256_set1_epi32(0x7fffffff);
    __m256i max = _mm256_setzero_si256();
    for (int i = 0; i < 4; ++i) {
      max = _mm256_max_epu32(max, _mm256_and_si256(_mm256_castps_si256(v[i]), mask));
    }
    __m128i four = _mm_max_epu32(_mm256_castsi256_si128(max), _mm256_extracti128_si256(max, 1));
    four = _mm_max_epu32(four, _mm_shuffle_epi32(four, 0x4e));
    four = _mm_max_epu32(four, _mm_shuffle_epi32(four, 0xb1));
    return static_cast<uint32_t>(_mm_cvtsi128_si32(four));
  }
  void Quantize(float factor, int8_t* q, int32_t* sums) const {
    __m256i n[4];
    for (int i = 0; i < 4; ++i) {
      n[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], _mm256_set1_ps(factor)));
    }
    // Packing works within 128-bit halves, so that pairs of four come out of order.
    __m256i bytes =
        _mm256_packs_epi16(_mm256_packs_epi32(n[0], n[1]), _mm256_packs_epi32(n[2], n[3]));
    bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(q), bytes);
    for (int half = 0; half < 2; ++half) {
      __m256i eight = _mm256_add_epi32(n[2 * half], n[2 * half + 1]);
      __m128i four =
          _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
      four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
      sums[half] = _mm_cvtsi128_si32(_mm_add_epi32(four, _mm_shuffle_epi32(four, 0xb1)));
    }
  }
  void QuantizeTo16(float factor, int16_t* q) const {
    for (int half = 0; half < 2; ++half) {
      auto code = [&](int i) {
        return _mm256_cvtps_epi32(_mm256_mul_ps(v[2 * half + i], _mm256_set1_ps(factor)));
      };
      // Packing works within 128-bit halves.
      const __m256i codes = _mm256_permute4x64_epi64(_mm256_packs_epi32(code(0), code(1)), 0xd8);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(q + 16 * half), codes);
    }
  }
};

}  // namespace
}  // namespace lm

#endif  // LM_ENGINE_BACKEND_CPU_SIMD_AVX2_H_
