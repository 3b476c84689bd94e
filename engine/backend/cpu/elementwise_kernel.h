// Norms, activations, softmax and their exp, recurrences, and the types of the KV cache. Included
// by kernels_*.cc after a simd_*.h.
//
// Sums run in sixteen lanes (lane i takes the values 16 k + i) that are added in one tree at the
// end; values beyond the end of a row count as zeros, which changes nothing.
#ifndef LM_ENGINE_BACKEND_CPU_ELEMENTWISE_KERNEL_H_
#define LM_ENGINE_BACKEND_CPU_ELEMENTWISE_KERNEL_H_

#include "engine/backend/cpu/cpu_kernels.h"

namespace lm {
namespace {

// e^x to about one unit in the last place; 0 below -87.3, its value at 88.37 above that.
// x = n ln 2 + r with |r| <= ln 2 / 2 (ln 2 in two parts, so that r is exact enough), then the
// Taylor series of e^r to r^7, whose remainder is below 3e-9.
inline F32x16 Exp(F32x16 x) {
  constexpr float kLow = -87.3f;
  // The bound comes first: Max and Min return their second argument where either is NaN.
  F32x16 y = Min(F32x16::Set(88.37f), Max(F32x16::Set(kLow), x));
  F32x16 n = Round(y * F32x16::Set(1.44269504f));
  F32x16 r = Fma(n, F32x16::Set(-0.693145752f), y);  // exact: 0.693145752 has 16 bits
  r = Fma(n, F32x16::Set(-1.42860677e-6f), r);
  F32x16 p = F32x16::Set(1.0f / 5040);
  p = Fma(p, r, F32x16::Set(1.0f / 720));
  p = Fma(p, r, F32x16::Set(1.0f / 120));
  p = Fma(p, r, F32x16::Set(1.0f / 24));
  p = Fma(p, r, F32x16::Set(1.0f / 6));
  p = Fma(p, r, F32x16::Set(0.5f));
  p = Fma(p, r, F32x16::Set(1.0f));
  p = Fma(p, r, F32x16::Set(1.0f));
  return ZeroBelow(ScaleByPowerOf2(p, n), x, kLow);
}

// Calls f(i, lanes) for each 16 of n values.
template <typename F>
inline void ForSixteens(int64_t n, F f) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) f(i, 16);
  if (i < n) f(i, static_cast<int>(n - i));
}

inline F32x16 LoadUpTo(const float* p, int lanes, float fill) {
  return lanes == 16 ? F32x16::Load(p) : F32x16::LoadN(p, lanes, fill);
}

inline void StoreUpTo(F32x16 x, float* p, int lanes) {
  if (lanes == 16) {
    x.Store(p);
  } else {
    x.StoreN(p, lanes);
  }
}

void RmsNormRow(const float* x, const float* weight, int64_t n, float eps, float* out) {
  F32x16 sum = F32x16::Zero();
  ForSixteens(n, [&](int64_t i, int lanes) {
    F32x16 v = LoadUpTo(x + i, lanes, 0);
    sum = Fma(v, v, sum);
  });
  F32x16 scale = F32x16::Set(1.0f / __builtin_sqrtf(ReduceSum(sum) / static_cast<float>(n) + eps));
  ForSixteens(n, [&](int64_t i, int lanes) {
    F32x16 v = LoadUpTo(x + i, lanes, 0) * scale;
    StoreUpTo(v * LoadUpTo(weight + i, lanes, 0), out + i, lanes);
  });
}

void LayerNormRow(const float* x, const float* weight, int64_t n, float eps, float* out) {
  const float count = static_cast<float>(n);
  F32x16 sum = F32x16::Zero();
  ForSixteens(n, [&](int64_t i, int lanes) { sum = sum + LoadUpTo(x + i, lanes, 0); });
  const float mean_value = ReduceSum(sum) / count;
  F32x16 mean = F32x16::Set(mean_value);
  sum = F32x16::Zero();
  ForSixteens(n, [&](int64_t i, int lanes) {
    F32x16 v = LoadUpTo(x + i, lanes, mean_value) - mean;
    sum = Fma(v, v, sum);
  });
  F32x16 scale = F32x16::Set(1.0f / __builtin_sqrtf(ReduceSum(sum) / count + eps));
  ForSixteens(n, [&](int64_t i, int lanes) {
    F32x16 v = (LoadUpTo(x + i, lanes, 0) - mean) * scale;
    StoreUpTo(v * LoadUpTo(weight + i, lanes, 0), out + i, lanes);
  });
}

// x / (1 + exp(-z)): 0 where z is so low that Exp no longer grows.
inline F32x16 TimesSigmoid(F32x16 x, F32x16 z) {
  // Below -88 the true value is less than 1e-36.
  return ZeroBelow(x / (F32x16::Set(1) + Exp(F32x16::Zero() - z)), z, -88.0f);
}

inline F32x16 GeluTanh(F32x16 x) {
  F32x16 cubic = x * x * x * F32x16::Set(0.044715f);
  return TimesSigmoid(x, (x + cubic) * F32x16::Set(1.5957691216057308f));  // 2 sqrt(2 / pi)
}

// log(1 + e^x) = max(x, 0) + log1p(z), z = e^-|x|: log1p(z) = 2 atanh(u), u = z / (2 + z) <= 1 / 3,
// by the series of atanh to u^15, whose remainder is below 2e-9 u.
inline F32x16 Softplus(F32x16 x) {
  F32x16 zero = F32x16::Zero();
  F32x16 z = Exp(Min(x, zero - x));
  F32x16 u = z / (F32x16::Set(2) + z);
  F32x16 square = u * u;
  F32x16 p = F32x16::Set(1.0f / 15);
  for (int n = 13; n >= 1; n -= 2) p = Fma(p, square, F32x16::Set(1.0f / static_cast<float>(n)));
  return Fma(u + u, p, Max(zero, x));
}

// max(x, 0), NaN where x is.
inline F32x16 Relu(F32x16 x) { return Max(F32x16::Zero(), x); }

template <typename F>
inline void GateRow(const float* gate, const float* up, int64_t n, float* out, F activate) {
  if (up == nullptr) {
    return ForSixteens(n, [&](int64_t i, int lanes) {
      StoreUpTo(activate(LoadUpTo(gate + i, lanes, 0)), out + i, lanes);
    });
  }
  ForSixteens(n, [&](int64_t i, int lanes) {
    F32x16 active = activate(LoadUpTo(gate + i, lanes, 0));
    StoreUpTo(active * LoadUpTo(up + i, lanes, 0), out + i, lanes);
  });
}

void SwigluOaiRow(const float* gate, const float* up, int64_t n, float* out) {
  F32x16 most = F32x16::Set(7), least = F32x16::Set(-7), one = F32x16::Set(1);
  ForSixteens(n, [&](int64_t i, int lanes) {
    F32x16 g = Min(most, LoadUpTo(gate + i, lanes, 0));
    g = TimesSigmoid(g, g * F32x16::Set(1.702f));
    if (up != nullptr) g = g * (Max(least, Min(most, LoadUpTo(up + i, lanes, 0))) + one);
    StoreUpTo(g, out + i, lanes);
  });
}

void GatedActivationRow(Activation activation, const float* gate, const float* up, int64_t n,
                        float* out) {
  switch (activation) {
    case Activation::kSilu:
      return GateRow(gate, up, n, out, [](F32x16 x) { return TimesSigmoid(x, x); });
    case Activation::kGeluTanh:
      return GateRow(gate, up, n, out, [](F32x16 x) { return GeluTanh(x); });
    case Activation::kSigmoid:
      return GateRow(gate, up, n, out, [](F32x16 x) { return TimesSigmoid(F32x16::Set(1), x); });
    case Activation::kIdentity:
      return GateRow(gate, up, n, out, [](F32x16 x) { return x; });
    case Activation::kRelu:
      return GateRow(gate, up, n, out, [](F32x16 x) { return Relu(x); });
    case Activation::kRelu2:
      return GateRow(gate, up, n, out, [](F32x16 x) { return Relu(x) * Relu(x); });
    case Activation::kSoftplus:
      return GateRow(gate, up, n, out, [](F32x16 x) { return Softplus(x); });
    case Activation::kExp:
      return GateRow(gate, up, n, out, [](F32x16 x) { return Exp(Min(F32x16::Set(88), x)); });
    case Activation::kSwigluOai:
      return SwigluOaiRow(gate, up, n, out);
  }
}

void ConvRow(const float* const* rows, const float* weight, int64_t weight_stride, int width,
             int64_t n, const float* bias, bool silu, float* out) {
  ForSixteens(n, [&](int64_t i, int lanes) {
    F32x16 sum = F32x16::Zero();
    for (int j = 0; j < width; ++j) {
      sum = Fma(LoadUpTo(weight + j * weight_stride + i, lanes, 0), LoadUpTo(rows[j] + i, lanes, 0),
                sum);
    }
    if (bias != nullptr) sum = sum + LoadUpTo(bias + i, lanes, 0);
    StoreUpTo(silu ? TimesSigmoid(sum, sum) : sum, out + i, lanes);
  });
}

// Four sums over the rows of the state, i mod 4 each, added as a tree.
template <bool kDecayOfKeys, bool kErases>
void DeltaRulePanelOf(const DeltaRulePanelOp& op) {
  const int64_t dim = op.key_dim;
  auto row = [&op](int64_t i) { return op.state + i * op.state_stride; };
  for (int64_t t = 0; t < op.tokens; ++t) {
    const float* q = op.q + t * op.q_stride;
    const float* k = op.k + t * op.k_stride;
    const float* erase = kErases ? op.erase + t * op.erase_stride : nullptr;
    const float* rates = kErases ? op.rates + t * op.rates_stride : nullptr;
    const float* decays = op.decay + t * op.decay_stride;
    const F32x16 one_decay = F32x16::Set(decays[0]);
    auto decay = [&](int64_t i) {
      if constexpr (kDecayOfKeys) return F32x16::Set(decays[i]);
      return one_decay;
    };
    F32x16 sums[4] = {F32x16::Zero(), F32x16::Zero(), F32x16::Zero(), F32x16::Zero()};
    auto read = [&](int64_t i, F32x16& sum) {
      F32x16 s = LoadUpTo(row(i), op.lanes, 0);
      if constexpr (kErases) {
        sum = Fma(s, F32x16::Set(erase[i]), sum);
      } else {
        sum = Fma(s * decay(i), F32x16::Set(k[i]), sum);
      }
    };
    int64_t i = op.reads || kErases ? 0 : dim;
    for (; i + 4 <= dim; i += 4) {
      read(i, sums[0]);
      read(i + 1, sums[1]);
      read(i + 2, sums[2]);
      read(i + 3, sums[3]);
    }
    for (; i < dim; ++i) read(i, sums[i % 4]);
    F32x16 known = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    F32x16 v = LoadUpTo(op.v + t * op.v_stride, op.lanes, 0);
    F32x16 change = kErases ? v : (v - known) * F32x16::Set(op.learnt[t]);
    for (F32x16& sum : sums) sum = F32x16::Zero();
    auto write = [&](int64_t i, F32x16& sum) {
      F32x16 s = LoadUpTo(row(i), op.lanes, 0) * decay(i);
      if constexpr (kErases) s = Fma(F32x16::Set(-(erase[i] * rates[i])), known, s);
      s = Fma(F32x16::Set(k[i]), change, s);
      StoreUpTo(s, row(i), op.lanes);
      sum = Fma(s, F32x16::Set(q[i]), sum);
    };
    for (i = 0; i + 4 <= dim; i += 4) {
      write(i, sums[0]);
      write(i + 1, sums[1]);
      write(i + 2, sums[2]);
      write(i + 3, sums[3]);
    }
    for (; i < dim; ++i) write(i, sums[i % 4]);
    F32x16 result = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    StoreUpTo(Fma(v, F32x16::Set(op.skip), result), op.out + t * op.out_stride, op.lanes);
  }
}

void DeltaRulePanel(const DeltaRulePanelOp& op) {
  if (op.erase != nullptr) return DeltaRulePanelOf<true, true>(op);
  if (op.decay_of_keys) return DeltaRulePanelOf<true, false>(op);
  DeltaRulePanelOf<false, false>(op);
}

void FloatToHalfRow(const float* x, int64_t n, uint16_t* out) {
  ForSixteens(n, [&](int64_t i, int lanes) {
    if (lanes == 16) return F32x16::Load(x + i).StoreHalf(out + i);
    uint16_t halves[16];
    F32x16::LoadN(x + i, lanes, 0).StoreHalf(halves);
    __builtin_memcpy(out + i, halves, lanes * sizeof(uint16_t));
  });
}

float QuantizeToInt8Row(const float* x, int64_t n, int8_t* q) {
  uint32_t max_bits = 0;  // of the magnitudes, which order as their bits do, with NaN on top
  for (int64_t i = 0; i < n; ++i) {
    uint32_t bits;
    __builtin_memcpy(&bits, x + i, sizeof(bits));
    bits &= 0x7fffffffu;
    max_bits = bits > max_bits ? bits : max_bits;
    q[i] = 0;
  }
  if (max_bits >= 0x7f800000u) return __builtin_nanf("");
  float max;
  __builtin_memcpy(&max, &max_bits, sizeof(max));
  float inverse = 127.0f / max;
  if (inverse == __builtin_inff()) return 0.0f;
  F32x16 factor = F32x16::Set(inverse);
  ForSixteens(n, [&](int64_t i, int lanes) {
    float rounded[16];
    Round(LoadUpTo(x + i, lanes, 0) * factor).Store(rounded);
    for (int lane = 0; lane < lanes; ++lane) q[i + lane] = static_cast<int8_t>(rounded[lane]);
  });
  return max / 127.0f;
}

void Softcap(float* scores, int n, float scale, float cap) {
  F32x16 one = F32x16::Set(1), two = F32x16::Set(2), factor = F32x16::Set(scale / cap);
  F32x16 bound = F32x16::Set(cap);
  ForSixteens(n, [&](int64_t i, int lanes) {
    F32x16 x = LoadUpTo(scores + i, lanes, 0) * factor;
    F32x16 tanh = one - two / (one + Exp(x + x));
    StoreUpTo(tanh * bound, scores + i, lanes);
  });
}

void Softmax(float* scores, int n, float scale, float* max, float* sum) {
  constexpr float kMinusInfinity = -__builtin_inff();
  F32x16 factor = F32x16::Set(scale);
  F32x16 greatest = F32x16::Set(kMinusInfinity);
  // Beyond the last score the lanes are minus infinity.
  auto load = [&](int64_t i, int lanes) {
    const F32x16 s = LoadUpTo(scores + i, lanes, 0) * factor;
    if (lanes == 16) return s;
    float last[16];
    s.Store(last);
    return F32x16::LoadN(last, lanes, kMinusInfinity);
  };
  ForSixteens(n, [&](int64_t i, int lanes) { greatest = Max(greatest, load(i, lanes)); });
  *max = ReduceMax(greatest);
  F32x16 shift = F32x16::Set(*max);
  F32x16 total = F32x16::Zero();
  ForSixteens(n, [&](int64_t i, int lanes) {
    F32x16 weight = Exp(load(i, lanes) - shift);
    StoreUpTo(weight, scores + i, lanes);
    total = total + weight;
  });
  *sum = ReduceSum(total);
}

void ScaleAndAdd(float* total, float keep, const float* next, float add, int64_t n) {
  F32x16 k = F32x16::Set(keep), a = F32x16::Set(add);
  ForSixteens(n, [&](int64_t i, int lanes) {
    F32x16 scaled = LoadUpTo(total + i, lanes, 0) * k;
    StoreUpTo(Fma(LoadUpTo(next + i, lanes, 0), a, scaled), total + i, lanes);
  });
}

void AddScaled(float* x, const float* y, float scale, int64_t n) {
  F32x16 factor = F32x16::Set(scale);
  ForSixteens(n, [&](int64_t i, int lanes) {
    F32x16 scaled = LoadUpTo(y + i, lanes, 0) * factor;
    StoreUpTo(LoadUpTo(x + i, lanes, 0) + scaled, x + i, lanes);
  });
}

void Scale(float* x, float scale, int64_t n) {
  F32x16 factor = F32x16::Set(scale);
  ForSixteens(n, [&](int64_t i, int lanes) {
    StoreUpTo(LoadUpTo(x + i, lanes, 0) * factor, x + i, lanes);
  });
}

void Clamp(float* x, float low, float high, int64_t n) {
  F32x16 least = F32x16::Set(low), most = F32x16::Set(high);
  ForSixteens(n, [&](int64_t i, int lanes) {
    StoreUpTo(Max(least, Min(most, LoadUpTo(x + i, lanes, 0))), x + i, lanes);
  });
}

float Dot(const float* x, const float* y, int64_t n) {
  F32x16 sum = F32x16::Zero();
  ForSixteens(n, [&](int64_t i, int lanes) {
    sum = Fma(LoadUpTo(x + i, lanes, 0), LoadUpTo(y + i, lanes, 0), sum);
  });
  return ReduceSum(sum);
}

void WeightedSum(const float* const* rows, const float* weights, int count, int64_t n, float* out) {
  ForSixteens(n, [&](int64_t i, int lanes) {
    F32x16 sum = F32x16::Zero();
    for (int j = 0; j < count; ++j) {
      sum = Fma(LoadUpTo(rows[j] + i, lanes, 0), F32x16::Set(weights[j]), sum);
    }
    StoreUpTo(sum, out + i, lanes);
  });
}

void Multiply(float* x, const float* y, int64_t n) {
  ForSixteens(n, [&](int64_t i, int lanes) {
    StoreUpTo(LoadUpTo(x + i, lanes, 0) * LoadUpTo(y + i, lanes, 0), x + i, lanes);
  });
}

void Divide(const float* x, float divisor, int64_t n, float* out) {
  F32x16 d = F32x16::Set(divisor);
  ForSixteens(
      n, [&](int64_t i, int lanes) { StoreUpTo(LoadUpTo(x + i, lanes, 0) / d, out + i, lanes); });
}

}  // namespace
}  // namespace lm

#endif  // LM_ENGINE_BACKEND_CPU_ELEMENTWISE_KERNEL_H_
