#include "engine/convert/quantize.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>

#include "engine/base/float16.h"

namespace lm {
namespace {

// A run of values and the weights of their errors.
struct Values {
  const float* x;
  const float* w;
  size_t count;

  Values Part(size_t first, size_t size) const { return {x + first, w + first, size}; }
};

float RoundedToHalf(float value) { return HalfToFloat(FloatToHalf(value)); }

void PutHalf(float value, uint8_t* to) {
  const uint16_t half = FloatToHalf(value);
  std::memcpy(to, &half, sizeof(half));
}

// x * inverse, kept to [low, high] and rounded; in F32, so that loops of it are vectors.
float RoundedCode(float x, float inverse, float low, float high) {
  constexpr float kNoFraction = 12582912;  // 1.5 * 2^23: what is added to it becomes whole
  return std::min(std::max(x * inverse, low), high) + kNoFraction - kNoFraction;
}

int Code(float x, float inverse, int low, int high) {
  return static_cast<int>(
      RoundedCode(x, inverse, static_cast<float>(low), static_cast<float>(high)));
}

float Inverse(float scale) { return scale != 0 ? 1 / scale : 0; }

// Sums over a group, in lanes that the compiler keeps in vectors.
constexpr size_t kLanes = 8;
struct Sum {
  std::array<float, kLanes> lanes = {};

  float total() const { return std::accumulate(lanes.begin(), lanes.end(), 0.0f); }
};

// The scale s for which sum w (x - s q)^2 is about the least, q being round(x / s) kept to
// [low, high]. Scales are tried that put the extreme value near either end of the codes, and each
// is made the best one for its codes. REQUIRES: whole lanes.
float FitScale(const Values& v, int low, int high) {
  float extreme = 0;
  for (size_t i = 0; i < v.count; ++i) {
    if (std::fabs(v.x[i]) > std::fabs(extreme)) extreme = v.x[i];
  }
  if (std::fabs(extreme) < 1e-30f) return 0;  // its inverse would be infinite
  const float least = static_cast<float>(low), most = static_cast<float>(high);
  float best_scale = 0, best_gain = -1;
  for (const float end : {least, most}) {
    for (int step = -9; step <= 9; ++step) {
      const float inverse = (end + 0.1f * static_cast<float>(step)) / extreme;
      Sum xq_sum, qq_sum;
      for (size_t i = 0; i < v.count; i += kLanes) {
        for (size_t lane = 0; lane < kLanes; ++lane) {
          const float x = v.x[i + lane], q = RoundedCode(x, inverse, least, most);
          const float wq = v.w[i + lane] * q;
          xq_sum.lanes[lane] += wq * x;
          qq_sum.lanes[lane] += wq * q;
        }
      }
      // The error is sum w x^2 - xq^2 / qq.
      const float xq = xq_sum.total(), qq = qq_sum.total();
      if (qq > 0 && xq * xq > best_gain * qq) {
        best_gain = xq * xq / qq;
        best_scale = xq / qq;
      }
    }
  }
  return best_scale;
}

// x is about scale q - minimum, q in [0, high].
struct Affine {
  float scale = 0;
  float minimum = 0;  // >= 0
};

float ErrorOf(const Values& v, const Affine& fit, float high) {
  const float inverse = Inverse(fit.scale);
  Sum error;
  for (size_t i = 0; i < v.count; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const float x = v.x[i + lane] + fit.minimum;
      const float off = x - fit.scale * RoundedCode(x, inverse, 0, high);
      error.lanes[lane] += v.w[i + lane] * off * off;
    }
  }
  return error.total();
}

// The best scale and minimum for the codes that `fit` gives.
Affine Refit(const Values& v, const Affine& fit, float high) {
  const float inverse = Inverse(fit.scale);
  Sum sums[5];
  for (size_t i = 0; i < v.count; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const float x = v.x[i + lane], w = v.w[i + lane];
      const float q = RoundedCode(x + fit.minimum, inverse, 0, high);
      sums[0].lanes[lane] += w * x;
      sums[1].lanes[lane] += w * q;
      sums[2].lanes[lane] += w * q * q;
      sums[3].lanes[lane] += w * x * q;
      sums[4].lanes[lane] += w;
    }
  }
  const float n = sums[4].total();
  const float sx = sums[0].total(), sq = sums[1].total(), sqq = sums[2].total(),
              sxq = sums[3].total();
  const float d = n * sqq - sq * sq;
  if (d <= 0) return fit;
  Affine better = {(n * sxq - sq * sx) / d, (sq * sxq - sqq * sx) / d};
  if (better.minimum < 0) better = {sxq / sqq, 0};
  return better.scale > 0 ? better : fit;
}

Affine FitAffine(const Values& v, float high) {
  const auto [lowest, highest] = std::minmax_element(v.x, v.x + v.count);
  const float low = std::min(*lowest, 0.0f), range = *highest - low;
  if (range < 1e-30f) return {0, -low};
  Affine best = {range / high, -low};  // where every error is infinite, so is the block's scale
  float best_error = std::numeric_limits<float>::max();
  for (int step = -9; step <= 9; ++step) {
    const Affine fit = Refit(v, {range / (high + 0.1f * static_cast<float>(step)), -low}, high);
    const float error = ErrorOf(v, fit, high);
    if (error < best_error) {
      best_error = error;
      best = fit;
    }
  }
  return Refit(v, best, high);
}

// Low and high nibbles are 16 values apart.
template <typename CodeOf>
void PutNibbles(CodeOf code, uint8_t* to) {
  for (int j = 0; j < 16; ++j) {
    to[j] = static_cast<uint8_t>((code(j) & 15) | (code(j + 16) & 15) << 4);
  }
}

void EncodeQ4_0(const Values& v, uint8_t* to) {
  const float scale = FitScale(v, -8, 7);
  const float inverse = Inverse(RoundedToHalf(scale));
  PutHalf(scale, to);
  PutNibbles([&](int j) { return Code(v.x[j], inverse, -8, 7) + 8; }, to + 2);
}

void EncodeQ5_0(const Values& v, uint8_t* to) {
  const float scale = FitScale(v, -16, 15);
  const float inverse = Inverse(RoundedToHalf(scale));
  auto code = [&](int j) { return Code(v.x[j], inverse, -16, 15) + 16; };
  PutHalf(scale, to);
  uint32_t high_bits = 0;
  for (int j = 0; j < 32; ++j) high_bits |= static_cast<uint32_t>(code(j) >> 4) << j;
  std::memcpy(to + 2, &high_bits, sizeof(high_bits));
  PutNibbles(code, to + 6);
}

void EncodeQ8_0(const Values& v, uint8_t* to) {
  float most = 0;
  for (size_t j = 0; j < v.count; ++j) most = std::max(most, std::fabs(v.x[j]));
  const float scale = most / 127;
  const float inverse = Inverse(RoundedToHalf(scale));
  PutHalf(scale, to);
  for (int j = 0; j < 32; ++j) to[2 + j] = static_cast<uint8_t>(Code(v.x[j], inverse, -127, 127));
}

// Of the integers next to `wanted`, within [low, high], the one with the least error.
template <typename Error>
int BestNear(float wanted, int low, int high, Error error) {
  const int middle = std::clamp(static_cast<int>(std::lrintf(wanted)), low, high);
  int best = middle;
  float least = error(middle);
  for (const int other : {middle - 1, middle + 1}) {
    if (other < low || other > high) continue;
    const float now = error(other);
    if (now < least) {
      least = now;
      best = other;
    }
  }
  return best;
}

// d, dmin; 8 scales and minima of 6 bits; 256 codes of 4.
void EncodeQ4_K(const Values& v, uint8_t* to) {
  constexpr int kGroup = 32, kGroups = 8, kHigh = 15, kMost = 63;
  std::array<Affine, kGroups> fits;
  float most_scale = 0, most_minimum = 0;
  for (int j = 0; j < kGroups; ++j) {
    fits[j] = FitAffine(v.Part(j * kGroup, kGroup), kHigh);
    most_scale = std::max(most_scale, fits[j].scale);
    most_minimum = std::max(most_minimum, fits[j].minimum);
  }
  const float d = RoundedToHalf(most_scale / kMost), dmin = RoundedToHalf(most_minimum / kMost);
  PutHalf(d, to);
  PutHalf(dmin, to + 2);
  uint8_t* const packed = to + 4;
  uint8_t* const codes = packed + 12;
  std::memset(packed, 0, 12);
  if (!std::isfinite(d) || !std::isfinite(dmin)) return;
  for (int j = 0; j < kGroups; ++j) {
    const Values group = v.Part(j * kGroup, kGroup);
    auto with = [&](int scale, int minimum) {
      return Affine{d * static_cast<float>(scale), dmin * static_cast<float>(minimum)};
    };
    int minimum = std::min(kMost, static_cast<int>(std::lrintf(fits[j].minimum * Inverse(dmin))));
    const int scale = BestNear(fits[j].scale * Inverse(d), 0, kMost,
                               [&](int s) { return ErrorOf(group, with(s, minimum), kHigh); });
    minimum = BestNear(static_cast<float>(minimum), 0, kMost,
                       [&](int m) { return ErrorOf(group, with(scale, m), kHigh); });
    if (j < 4) {
      packed[j] |= static_cast<uint8_t>(scale);
      packed[j + 4] |= static_cast<uint8_t>(minimum);
    } else {
      packed[j + 4] |= static_cast<uint8_t>((scale & 15) | (minimum & 15) << 4);
      packed[j - 4] |= static_cast<uint8_t>(scale >> 4 << 6);
      packed[j] |= static_cast<uint8_t>(minimum >> 4 << 6);
    }
    const Affine fit = with(scale, minimum);
    const float inverse = Inverse(fit.scale);
    uint8_t* const bytes = codes + j / 2 * kGroup;
    for (int i = 0; i < kGroup; ++i) {
      const int code = Code(group.x[i] + fit.minimum, inverse, 0, kHigh);
      bytes[i] = static_cast<uint8_t>(j % 2 == 0 ? code : bytes[i] | code << 4);
    }
  }
}

// The low 4 bits of 256 codes, their high 2 bits, 16 scales of 8 bits, d.
void EncodeQ6_K(const Values& v, uint8_t* to) {
  constexpr int kGroup = 16, kGroups = 16;
  uint8_t* const low = to;
  uint8_t* const high = to + 128;
  uint8_t* const scales = to + 192;
  std::array<float, kGroups> fits;
  float most = 0;
  for (int j = 0; j < kGroups; ++j) {
    fits[j] = FitScale(v.Part(j * kGroup, kGroup), -32, 31);
    if (std::fabs(fits[j]) > std::fabs(most)) most = fits[j];
  }
  const float d = RoundedToHalf(most / -128);
  PutHalf(d, to + 208);
  std::memset(to, 0, 192);
  if (!std::isfinite(d)) return;
  for (int j = 0; j < kGroups; ++j) {
    const Values group = v.Part(j * kGroup, kGroup);
    const int scale = BestNear(fits[j] * Inverse(d), -128, 127, [&](int s) {
      const float step = d * static_cast<float>(s), inverse = Inverse(step);
      float error = 0;
      for (size_t i = 0; i < group.count; ++i) {
        const float off = group.x[i] - step * RoundedCode(group.x[i], inverse, -32, 31);
        error += group.w[i] * off * off;
      }
      return error;
    });
    scales[j] = static_cast<uint8_t>(scale);
    const float inverse = Inverse(d * static_cast<float>(scale));
    for (int i = 0; i < kGroup; ++i) {
      const int code = Code(group.x[i], inverse, -32, 31) + 32;
      const int at = j * kGroup + i, half = at / 128, in_half = at % 128;
      const int quarter = in_half / 32, l = in_half % 32;
      low[half * 64 + l + quarter % 2 * 32] |=
          static_cast<uint8_t>((code & 15) << (quarter / 2 * 4));
      high[half * 32 + l] |= static_cast<uint8_t>(code >> 4 << (2 * quarter));
    }
  }
}

using Encoder = void (*)(const Values&, uint8_t*);

Encoder EncoderOf(DType dtype) {
  switch (dtype) {
    case DType::kQ4_0:
      return &EncodeQ4_0;
    case DType::kQ5_0:
      return &EncodeQ5_0;
    case DType::kQ8_0:
      return &EncodeQ8_0;
    case DType::kQ4_K:
      return &EncodeQ4_K;
    case DType::kQ6_K:
      return &EncodeQ6_K;
    default:
      return nullptr;
  }
}

// Rounds to the nearest, ties to even.
uint16_t FloatToBf16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

}  // namespace

bool CanQuantize(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16 ||
         EncoderOf(dtype) != nullptr;
}

void QuantizeRow(DType dtype, absl::Span<const float> values, absl::Span<const float> weights,
                 char* blocks) {
  assert(CanQuantize(dtype) && weights.size() == values.size());
  if (dtype == DType::kF32) {
    std::memcpy(blocks, values.data(), values.size() * sizeof(float));
    return;
  }
  if (const Encoder encode = EncoderOf(dtype)) {
    const DTypeTraits& traits = Traits(dtype);
    for (size_t i = 0; i < values.size(); i += traits.block_size, blocks += traits.block_bytes) {
      encode({values.data() + i, weights.data() + i, static_cast<size_t>(traits.block_size)},
             reinterpret_cast<uint8_t*>(blocks));
    }
    return;
  }
  for (const float value : values) {
    const uint16_t bits = dtype == DType::kF16 ? FloatToHalf(value) : FloatToBf16(value);
    std::memcpy(blocks, &bits, sizeof(bits));
    blocks += sizeof(bits);
  }
}

}  // namespace lm
