// How a token is drawn (sampling.h), in integers: their sums are the same in any order, so every
// device draws what the host draws.
//
// A token whose logit l is adjusted has the weight exp((l - m) / temperature), m the greatest of
// them, in units of 2^-40, rounded: what is less likely than the greatest by a factor of 2^41 is
// never drawn. Tokens are ordered by weight, of equals the lower id first, that is by their keys:
// greater ones first.
#ifndef LM_ENGINE_BACKEND_DRAW_LAW_H_
#define LM_ENGINE_BACKEND_DRAW_LAW_H_

#include <cstdint>

namespace lm {

// Of this law, and of which numbers it is given: another one where the same seed would draw another
// token.
inline constexpr int kDrawLaw = 3;

inline constexpr int kWeightBits = 40;
inline constexpr uint64_t kGreatestWeight = uint64_t{1} << kWeightBits;
// A key is a weight and, below it, what a token lacks of this; so many weights have a sum.
inline constexpr int kTokenBits = 23;
inline constexpr int32_t kMostDrawnTokens = 1 << kTokenBits;

// Keeps adjusted logits so small that differences of two are finite.
constexpr double BoundedLogit(double logit) {
  return logit < -1e300 ? -1e300 : logit > 1e300 ? 1e300 : logit;
}

// A token whose logit is changed before anything is picked.
struct LogitAdjustment {
  double bias;  // all of the token's
  int32_t token;
  int32_t penalised;  // 1: by the row's repeat_penalty
};
constexpr double AdjustedLogit(double logit, const LogitAdjustment& change, double penalty) {
  if (change.penalised != 0) {
    logit = BoundedLogit(logit > 0 ? logit / penalty : logit * penalty);
  }
  return BoundedLogit(logit + change.bias);
}

// 1 / temperature as weights have it, > 0 and finite.
constexpr double InverseTemperature(double temperature) {
  return 1 / (temperature > 1e-300 ? temperature : 1e-300);
}

// How far a logit is below the greatest, in units of the temperature, <= 0. From kFarthest on the
// weight is 0.
inline constexpr double kFarthest = -30;
constexpr double BelowGreatest(double logit, double greatest, double inverse_temperature) {
  const double below = (logit - greatest) * inverse_temperature;
  return below > kFarthest ? below : kFarthest;
}

// 2^40 exp(below), rounded.
constexpr uint64_t WeightOf(double below) {
  const double twos = below * 1.4426950408889634;
  constexpr double kRound = 6755399441055744;  // 1.5 * 2^52
  const double shifted = twos + kRound;        // whose last bits are the nearest integer
  const double f =
      twos - (shifted - kRound);  // [-1/2, 1/2]; 2^f by the series of e^(f ln 2), to 2^-47
  double p = 4.44553827187081e-10;
  p = p * f + 7.054911620801121e-09;
  p = p * f + 1.0178086009239696e-07;
  p = p * f + 1.3215486790144305e-06;
  p = p * f + 1.5252733804059838e-05;
  p = p * f + 0.00015403530393381606;
  p = p * f + 0.0013333558146428441;
  p = p * f + 0.009618129107628477;
  p = p * f + 0.055504108664821576;
  p = p * f + 0.2402265069591007;
  p = p * f + 0.6931471805599453;
  p = p * f + 1;
  const uint64_t exponent = __builtin_bit_cast(uint64_t, shifted) + (kWeightBits + 1023);
  const double scale = __builtin_bit_cast(double, exponent << 52);
  const double weight = p * scale + 4503599627370496;  // 2^52: its fraction is the integer
  return __builtin_bit_cast(uint64_t, weight) & ((uint64_t{1} << 52) - 1);
}

constexpr uint64_t DrawKey(uint64_t weight, int32_t token) {
  return weight << kTokenBits | static_cast<uint64_t>(kMostDrawnTokens - 1 - token);
}
constexpr uint64_t WeightOfKey(uint64_t key) { return key >> kTokenBits; }
constexpr int32_t TokenOfKey(uint64_t key) {
  return kMostDrawnTokens - 1 - static_cast<int32_t>(key & (kMostDrawnTokens - 1));
}

// Buckets of weights > 0, greater ones in later buckets, 32 for each power of two: a double's
// exponent and the first bits of its fraction.
inline constexpr int kNumBuckets = 32 * kWeightBits + 1;
constexpr int BucketOf(uint64_t weight) {
  const auto value = static_cast<double>(static_cast<int64_t>(weight));
  const auto bits = __builtin_bit_cast(uint64_t, value);
  return static_cast<int>(bits >> 47) - (1023 << 5);
}
// The least weight of a bucket and the later ones.
constexpr uint64_t LeastOfBucket(int bucket) {
  const uint64_t bits = static_cast<uint64_t>(bucket + (1023 << 5)) << 47;
  const double least = __builtin_bit_cast(double, bits);
  const auto whole = static_cast<uint64_t>(least);
  return whole + (static_cast<double>(whole) < least ? 1 : 0);
}

// A share of a weight or a sum, rounded up, >= 1: what min_p is of the greatest weight, the least
// that is kept; and what top_p is of the sum of all, which the first ones must have together.
constexpr uint64_t ShareOf(double share, uint64_t whole) {
  const double exact = share * static_cast<double>(whole);
  if (exact >= static_cast<double>(whole)) return whole;
  const auto below = static_cast<uint64_t>(exact);
  const uint64_t up = below + (static_cast<double>(below) < exact ? 1 : 0);
  return up > 1 ? up : 1;
}

// Of weights in the order of their tokens that one is drawn whose end, in the sum of all, lies
// behind this: floor(random / 2^64 * total).
constexpr uint64_t DrawnPlace(uint64_t random, uint64_t total) {
  constexpr uint64_t kLow = 0xffffffff;
  const uint64_t low = (random & kLow) * (total & kLow);
  const uint64_t one = (random >> 32) * (total & kLow) + (low >> 32);
  const uint64_t other = (random & kLow) * (total >> 32) + (one & kLow);
  return (random >> 32) * (total >> 32) + (one >> 32) + (other >> 32);
}

}  // namespace lm

#endif  // LM_ENGINE_BACKEND_DRAW_LAW_H_
