// Sixteen lanes in plain C++. See simd_avx512.h for what each function promises.
#ifndef LM_ENGINE_BACKEND_CPU_SIMD_PORTABLE_H_
#define LM_ENGINE_BACKEND_CPU_SIMD_PORTABLE_H_

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "engine/base/float16.h"

namespace lm {
namespace {

constexpr int kFloatAccumulators = 4;
constexpr int kFloatPanels = 1;
constexpr bool kFewRegisters = false;
constexpr int kTilePanels = 1;
constexpr int kPairTokens = 1;
constexpr int kQuantizedTokens = 2;
constexpr int kPackedTokens = 1;
constexpr int kMostPacked = 4;
constexpr int kMostPackedHalfScale = 4;
constexpr int kStreams = 1;
constexpr int kStreamTokens = 0;
constexpr int kHalfScaleTokens = 2;
constexpr bool kBiasedBytes = false;
constexpr int kLanes = 16;

struct F32x16 {
  float v[kLanes];

  // A vector whose lane i is f(i).
  template <typename F>
  static F32x16 Make(F f) {
    F32x16 result;
    for (int i = 0; i < kLanes; ++i) result.v[i] = f(i);
    return result;
  }
  static F32x16 Zero() { return Set(0.0f); }
  static F32x16 Set(float x) {
    return Make([&](int) { return x; });
  }
  static F32x16 Load(const float* p) {
    return Make([&](int i) { return p[i]; });
  }
  static F32x16 LoadHalf(const uint16_t* p) {
    return Make([&](int i) { return HalfToFloat(p[i]); });
  }
  static F32x16 LoadBf16(const uint16_t* p) {
    return Make([&](int i) { return Bf16ToFloat(p[i]); });
  }
  static F32x16 LoadI8(const int8_t* p) {
    return Make([&](int i) { return static_cast<float>(p[i]); });
  }
  static F32x16 LoadN(const float* p, int n, float fill) {
    return Make([&](int i) { return i < n ? p[i] : fill; });
  }
  void Store(float* p) const { std::memcpy(p, v, sizeof(v)); }
  void StoreN(float* p, int n) const {
    for (int i = 0; i < kLanes && i < n; ++i) p[i] = v[i];
  }
  void StoreHalf(uint16_t* p) const {
    for (int i = 0; i < kLanes; ++i) p[i] = FloatToHalf(v[i]);
  }
};

inline F32x16 operator+(const F32x16& a, const F32x16& b) {
  return F32x16::Make([&](int i) { return a.v[i] + b.v[i]; });
}
inline F32x16 operator-(const F32x16& a, const F32x16& b) {
  return F32x16::Make([&](int i) { return a.v[i] - b.v[i]; });
}
inline F32x16 operator*(const F32x16& a, const F32x16& b) {
  return F32x16::Make([&](int i) { return a.v[i] * b.v[i]; });
}
inline F32x16 operator/(const F32x16& a, const F32x16& b) {
  return F32x16::Make([&](int i) { return a.v[i] / b.v[i]; });
}
inline F32x16 Max(const F32x16& a, const F32x16& b) {
  return F32x16::Make([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
}
inline F32x16 Min(const F32x16& a, const F32x16& b) {
  return F32x16::Make([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
}
inline F32x16 Fma(const F32x16& a, const F32x16& b, const F32x16& c) {
  return F32x16::Make([&](int i) { return std::fma(a.v[i], b.v[i], c.v[i]); });
}
inline F32x16 MulAdd(const F32x16& a, const F32x16& b, const F32x16& c) { return a * b + c; }
inline F32x16 Round(const F32x16& a) {
  // Adding and taking away 1.5 * 2^23 leaves no room for a fraction; larger numbers have none.
  constexpr float kShift = 12582912.0f;
  return F32x16::Make(
      [&](int i) { return std::fabs(a.v[i]) < 4194304.0f ? (a.v[i] + kShift) - kShift : a.v[i]; });
}
inline F32x16 ScaleByPowerOf2(const F32x16& a, const F32x16& n) {
  return F32x16::Make([&](int i) {
    // Whatever a NaN becomes, a.v[i] is NaN too.
    int exponent = n.v[i] >= -126.0f && n.v[i] <= 127.0f ? static_cast<int>(n.v[i]) : 0;
    return a.v[i] * std::bit_cast<float>(static_cast<uint32_t>(exponent + 127) << 23);
  });
}
inline F32x16 ZeroBelow(const F32x16& a, const F32x16& x, float limit) {
  return F32x16::Make([&](int i) { return x.v[i] < limit ? 0.0f : a.v[i]; });
}

// The same tree as the other instruction sets: lanes i and i + 8, i + 4, i + 2, i + 1.
inline float ReduceSum(F32x16 a) {
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) a.v[i] += a.v[i + half];
  }
  return a.v[0];
}
inline float ReduceMax(const F32x16& a) {
  float max = a.v[0];
  for (int i = 1; i < kLanes; ++i) max = max > a.v[i] ? max : a.v[i];
  return max;
}

struct I32x16 {
  int32_t v[kLanes];
  static I32x16 Set(int32_t x) {
    I32x16 result;
    for (int i = 0; i < kLanes; ++i) result.v[i] = x;
    return result;
  }
  F32x16 ToFloat() const {
    return F32x16::Make([&](int i) { return static_cast<float>(v[i]); });
  }
};

struct Bytes64 {
  uint8_t v[4 * kLanes];
  static Bytes64 Load(const uint8_t* p) {
    Bytes64 result;
    std::memcpy(result.v, p, sizeof(result.v));
    return result;
  }
  static Bytes64 Broadcast4(const int8_t* p) {
    Bytes64 result;
    for (int i = 0; i < kLanes; ++i) std::memcpy(result.v + 4 * i, p, 4);
    return result;
  }
  void Store(uint8_t* p) const { std::memcpy(p, v, sizeof(v)); }
};

inline Bytes64 Extract(const Bytes64& a, int shift, int mask) {
  Bytes64 result;
  for (int i = 0; i < 4 * kLanes; ++i) result.v[i] = (a.v[i] >> shift) & mask;
  return result;
}
inline Bytes64 Combine(const Bytes64& low, const Bytes64& high, int shift) {
  Bytes64 result;
  for (int i = 0; i < 4 * kLanes; ++i) {
    result.v[i] = static_cast<uint8_t>(low.v[i] | (high.v[i] << shift));
  }
  return result;
}
inline Bytes64 Lookup(const uint8_t* table, const Bytes64& a) {
  Bytes64 result;
  for (int i = 0; i < 4 * kLanes; ++i) result.v[i] = table[a.v[i]];
  return result;
}

template <bool kSignedBytes>
inline void DotAdd(I32x16* acc, const Bytes64& w, const Bytes64& x) {
  for (int i = 0; i < kLanes; ++i) {
    int32_t sum = 0;
    for (int j = 0; j < 4; ++j) {
      int32_t weight = w.v[4 * i + j] - (kSignedBytes ? 128 : 0);
      sum += weight * static_cast<int8_t>(x.v[4 * i + j]);
    }
    acc->v[i] += sum;
  }
}

struct Pairs16 {
  int16_t v[2 * kLanes];
  static Pairs16 Load(const void* p) {
    Pairs16 result;
    std::memcpy(result.v, p, sizeof(result.v));
    return result;
  }
};
struct PairInAll {
  int16_t v[2];
  explicit PairInAll(const int16_t* p) : v{p[0], p[1]} {}
};
inline void DotPairs(I32x16* acc, const Pairs16& w, const PairInAll& x) {
  for (int i = 0; i < kLanes; ++i) {
    // Lanes whose sums nobody reads may overflow.
    const uint32_t first = static_cast<uint32_t>(w.v[2 * i] * x.v[0]);
    const uint32_t second = static_cast<uint32_t>(w.v[2 * i + 1] * x.v[1]);
    acc->v[i] = static_cast<int32_t>(static_cast<uint32_t>(acc->v[i]) + first + second);
  }
}

struct ActivationVector {
  const float* x;
  explicit ActivationVector(const float* x) : x(x) {}
  uint32_t MaxBits() const {
    uint32_t max = 0;
    for (int i = 0; i < 32; ++i) {
      uint32_t bits = std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu;
      max = max > bits ? max : bits;
    }
    return max;
  }
  void Quantize(float factor, int8_t* q, int32_t* sums) const {
    sums[0] = sums[1] = 0;
    for (int i = 0; i < 32; ++i) {
      // As in Round().
      constexpr float kShift = 12582912.0f;
      int32_t n = static_cast<int32_t>((x[i] * factor + kShift) - kShift);
      q[i] = static_cast<int8_t>(n);
      sums[i / 16] += n;
    }
  }
  void QuantizeTo16(float factor, int16_t* q) const {
    constexpr float kShift = 12582912.0f;
    for (int i = 0; i < 32; ++i) {
      q[i] = static_cast<int16_t>((x[i] * factor + kShift) - kShift);
    }
  }
};

}  // namespace
}  // namespace lm

#endif  // LM_ENGINE_BACKEND_CPU_SIMD_PORTABLE_H_
