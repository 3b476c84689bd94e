// Sixteen lanes on ARM64 as it began (ARMv8.0), as four registers of four, but for their products
// of bytes, of which there are three kinds (neon*_products.h). See simd_avx512.h for what each
// function promises.
#ifndef LM_ENGINE_BACKEND_CPU_SIMD_NEON_H_
#define LM_ENGINE_BACKEND_CPU_SIMD_NEON_H_

#include <arm_neon.h>

#include <cstdint>

namespace lm {
namespace {

// Of 32 registers.
constexpr int kFloatAccumulators = 6;
constexpr int kFloatPanels = 1;
constexpr bool kFewRegisters = false;
constexpr int kTilePanels = 1;
constexpr int kPairTokens = 1;
constexpr int kQuantizedTokens = 4;
constexpr int kHalfScaleTokens = 4;
constexpr int kMostPacked = 8;
constexpr int kMostPackedHalfScale = 4;
constexpr int kStreams = 1;
constexpr int kStreamTokens = 0;

struct F32x16 {
  float32x4_t v[4];

  // The vector whose quarters are f(0) to f(3).
  template <typename F>
  static F32x16 Make(F f) {
    return {{f(0), f(1), f(2), f(3)}};
  }
  static F32x16 Zero() { return Set(0); }
  static F32x16 Set(float x) {
    float32x4_t four = vdupq_n_f32(x);
    return {{four, four, four, four}};
  }
  static F32x16 Load(const float* p) {
    return Make([&](int i) { return vld1q_f32(p + 4 * i); });
  }
  static F32x16 LoadHalf(const uint16_t* p) {
    return Make([&](int i) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p + 4 * i))); });
  }
  static F32x16 LoadBf16(const uint16_t* p) {
    return Make([&](int i) {
      return vreinterpretq_f32_u32(vshlq_n_u32(vmovl_u16(vld1_u16(p + 4 * i)), 16));
    });
  }
  static F32x16 LoadI8(const int8_t* p) {
    int8x16_t bytes = vld1q_s8(p);
    int16x8_t low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_high_s8(bytes);
    return {{vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))), vcvtq_f32_s32(vmovl_high_s16(low)),
             vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))), vcvtq_f32_s32(vmovl_high_s16(high))}};
  }
  static F32x16 LoadN(const float* p, int n, float fill) {
    float lanes[16];
    for (int i = 0; i < 16; ++i) lanes[i] = i < n ? p[i] : fill;
    return Load(lanes);
  }
  void Store(float* p) const {
    for (int i = 0; i < 4; ++i) vst1q_f32(p + 4 * i, v[i]);
  }
  void StoreN(float* p, int n) const {
    float lanes[16];
    Store(lanes);
    for (int i = 0; i < n; ++i) p[i] = lanes[i];
  }
  void StoreHalf(uint16_t* p) const {
    for (int i = 0; i < 4; ++i) vst1_u16(p + 4 * i, vreinterpret_u16_f16(vcvt_f16_f32(v[i])));
  }
};

inline F32x16 operator+(F32x16 x, F32x16 y) {
  return F32x16::Make([&](int i) { return vaddq_f32(x.v[i], y.v[i]); });
}
inline F32x16 operator-(F32x16 x, F32x16 y) {
  return F32x16::Make([&](int i) { return vsubq_f32(x.v[i], y.v[i]); });
}
inline F32x16 operator*(F32x16 x, F32x16 y) {
  return F32x16::Make([&](int i) { return vmulq_f32(x.v[i], y.v[i]); });
}
inline F32x16 operator/(F32x16 x, F32x16 y) {
  return F32x16::Make([&](int i) { return vdivq_f32(x.v[i], y.v[i]); });
}
// The instructions that are made for it give NaN where either is NaN.
inline float32x4_t MaxOfFour(float32x4_t x, float32x4_t y) {
  return vbslq_f32(vcgtq_f32(x, y), x, y);
}
inline F32x16 Max(F32x16 x, F32x16 y) {
  return F32x16::Make([&](int i) { return MaxOfFour(x.v[i], y.v[i]); });
}
inline F32x16 Min(F32x16 x, F32x16 y) {
  return F32x16::Make([&](int i) { return vbslq_f32(vcltq_f32(x.v[i], y.v[i]), x.v[i], y.v[i]); });
}
inline F32x16 Fma(F32x16 x, F32x16 y, F32x16 z) {
  return F32x16::Make([&](int i) { return vfmaq_f32(z.v[i], x.v[i], y.v[i]); });
}
inline F32x16 MulAdd(F32x16 x, F32x16 y, F32x16 z) { return Fma(x, y, z); }
inline F32x16 Round(F32x16 x) {
  return F32x16::Make([&](int i) { return vrndnq_f32(x.v[i]); });
}
inline F32x16 ScaleByPowerOf2(F32x16 x, F32x16 n) {
  return x * F32x16::Make([&](int i) {
           int32x4_t biased = vaddq_s32(vcvtnq_s32_f32(n.v[i]), vdupq_n_s32(127));
           return vreinterpretq_f32_s32(vshlq_n_s32(biased, 23));
         });
}
inline F32x16 ZeroBelow(F32x16 y, F32x16 x, float limit) {
  return F32x16::Make([&](int i) {
    uint32x4_t below = vcltq_f32(x.v[i], vdupq_n_f32(limit));
    return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(y.v[i]), below));
  });
}

inline float ReduceSum(F32x16 x) {
  float32x4_t four = vaddq_f32(vaddq_f32(x.v[0], x.v[2]), vaddq_f32(x.v[1], x.v[3]));
  return vpadds_f32(vadd_f32(vget_low_f32(four), vget_high_f32(four)));
}

inline float ReduceMax(F32x16 x) {
  float32x4_t four = MaxOfFour(MaxOfFour(x.v[0], x.v[2]), MaxOfFour(x.v[1], x.v[3]));
  four = MaxOfFour(four, vextq_f32(four, four, 2));
  return vgetq_lane_f32(MaxOfFour(four, vextq_f32(four, four, 1)), 0);
}

struct I32x16 {
  int32x4_t v[4];
  static I32x16 Set(int32_t x) {
    int32x4_t four = vdupq_n_s32(x);
    return {{four, four, four, four}};
  }
  F32x16 ToFloat() const {
    return F32x16::Make([&](int i) { return vcvtq_f32_s32(v[i]); });
  }
};

struct Bytes64 {
  uint8x16_t v[4];
  template <typename F>
  static Bytes64 Make(F f) {
    return {{f(0), f(1), f(2), f(3)}};
  }
  static Bytes64 Load(const uint8_t* p) {
    return Make([&](int i) { return vld1q_u8(p + 16 * i); });
  }
  static Bytes64 Broadcast4(const int8_t* p) {
    int32_t four;
    __builtin_memcpy(&four, p, 4);
    uint8x16_t lanes = vreinterpretq_u8_s32(vdupq_n_s32(four));
    return {{lanes, lanes, lanes, lanes}};
  }
  void Store(uint8_t* p) const {
    for (int i = 0; i < 4; ++i) vst1q_u8(p + 16 * i, v[i]);
  }
};

inline Bytes64 Extract(Bytes64 x, int shift, int mask) {
  int8x16_t right = vdupq_n_s8(static_cast<int8_t>(-shift));
  uint8x16_t bits = vdupq_n_u8(static_cast<uint8_t>(mask));
  return Bytes64::Make([&](int i) { return vandq_u8(vshlq_u8(x.v[i], right), bits); });
}
inline Bytes64 Combine(Bytes64 low, Bytes64 high, int shift) {
  int8x16_t left = vdupq_n_s8(static_cast<int8_t>(shift));
  return Bytes64::Make([&](int i) { return vorrq_u8(low.v[i], vshlq_u8(high.v[i], left)); });
}
inline Bytes64 Lookup(const uint8_t* table, Bytes64 x) {
  uint8x16_t values = vld1q_u8(table);
  return Bytes64::Make([&](int i) { return vqtbl1q_u8(values, x.v[i]); });
}

// Codes of signed bytes are biased by 128; codes of others are below 128.
template <bool kSignedBytes>
inline int8x16_t AsSigned(uint8x16_t codes) {
  return vreinterpretq_s8_u8(kSignedBytes ? veorq_u8(codes, vdupq_n_u8(0x80)) : codes);
}

// The first and the second of each pair, eight lanes a register.
struct Pairs16 {
  int16x8x2_t v[2];
  static Pairs16 Load(const void* p) {
    const int16_t* codes = static_cast<const int16_t*>(p);
    return {{vld2q_s16(codes), vld2q_s16(codes + 16)}};
  }
};
struct PairInAll {
  int16x8_t v[2];
  explicit PairInAll(const int16_t* p) : v{vdupq_n_s16(p[0]), vdupq_n_s16(p[1])} {}
};
inline void DotPairs(I32x16* acc, const Pairs16& w, const PairInAll& x) {
  for (int half = 0; half < 2; ++half) {
    int32x4_t* sums = acc->v + 2 * half;
    for (int i = 0; i < 2; ++i) {
      const int16x8_t eight = w.v[half].val[i];
      sums[0] = vmlal_s16(sums[0], vget_low_s16(eight), vget_low_s16(x.v[i]));
      sums[1] = vmlal_high_s16(sums[1], eight, x.v[i]);
    }
  }
}

struct ActivationVector {
  float32x4_t v[8];
  explicit ActivationVector(const float* x) {
    for (int i = 0; i < 8; ++i) v[i] = vld1q_f32(x + 4 * i);
  }
  uint32_t MaxBits() const {
    uint32x4_t max = vdupq_n_u32(0);
    for (int i = 0; i < 8; ++i) {
      max = vmaxq_u32(max, vandq_u32(vreinterpretq_u32_f32(v[i]), vdupq_n_u32(0x7fffffff)));
    }
    return vmaxvq_u32(max);
  }
  void Quantize(float factor, int8_t* q, int32_t* sums) const {
    for (int half = 0; half < 2; ++half) {
      int32x4_t n[4];
      for (int i = 0; i < 4; ++i) n[i] = vcvtnq_s32_f32(vmulq_n_f32(v[4 * half + i], factor));
      int16x8_t low = vcombine_s16(vmovn_s32(n[0]), vmovn_s32(n[1]));
      int16x8_t high = vcombine_s16(vmovn_s32(n[2]), vmovn_s32(n[3]));
      vst1q_s8(q + 16 * half, vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
      sums[half] = vaddvq_s32(vaddq_s32(vaddq_s32(n[0], n[1]), vaddq_s32(n[2], n[3])));
    }
  }
  void QuantizeTo16(float factor, int16_t* q) const {
    for (int i = 0; i < 8; ++i) {
      vst1_s16(q + 4 * i, vmovn_s32(vcvtnq_s32_f32(vmulq_n_f32(v[i], factor))));
    }
  }
};

}  // namespace
}  // namespace lm

#endif  // LM_ENGINE_BACKEND_CPU_SIMD_NEON_H_
