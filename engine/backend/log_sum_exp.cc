// A vocabulary has 150,000 words and more, so four are looked at together.
#include "engine/backend/log_sum_exp.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>

namespace lm {
namespace {

typedef float Four __attribute__((vector_size(16)));
typedef int32_t FourInts __attribute__((vector_size(16)));

constexpr size_t kWord = 64;  // tokens of a word of the mask
constexpr float kNone = -std::numeric_limits<float>::infinity();

// A word's logits, minus infinity where a token is not in the mask or there is none.
struct WordOfLogits {
  Four values[kWord / 4];

  WordOfLogits(absl::Span<const float> logits, absl::Span<const uint64_t> mask, size_t word) {
    const size_t first = word * kWord, count = std::min(kWord, logits.size() - first);
    const uint64_t bits = mask.empty() ? ~uint64_t{0} : word < mask.size() ? mask[word] : 0;
    if (count == kWord && bits == ~uint64_t{0}) {
      std::memcpy(values, logits.data() + first, sizeof(values));
      return;
    }
    float all[kWord];
    for (size_t i = 0; i < kWord; ++i) {
      all[i] = i < count && (bits >> i & 1) != 0 ? logits[first + i] : kNone;
    }
    std::memcpy(values, all, sizeof(values));
  }
};

// e^x, x <= 0, within 2e-7 of it; 0 below -87. x = n ln 2 + r with |r| <= ln 2 / 2 (ln 2 in two
// parts), then the Taylor series of e^r to r^7.
Four Exp(Four x) {
  constexpr float kLow = -87;
  constexpr float kRound = 12582912;  // 1.5 * 2^23: what is added to it becomes an integer
  const Four y = x < kLow ? Four{} + kLow : x;
  const Four n = (y * 1.44269504f + kRound) - kRound;
  const Four r = (y - n * 0.693145752f) - n * 1.42860677e-6f;
  Four p = r * (1.0f / 5040) + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  const FourInts power = (__builtin_convertvector(n, FourInts) + 127) << 23;
  return x < kLow ? Four{} : p * (Four)power;
}

}  // namespace

double LogSumExp(absl::Span<const float> logits, absl::Span<const uint64_t> mask) {
  const size_t words = (logits.size() + kWord - 1) / kWord;
  Four most = Four{} + kNone;
  for (size_t word = 0; word < words; ++word) {
    for (const Four& v : WordOfLogits(logits, mask, word).values) most = most > v ? most : v;
  }
  const float greatest = std::max({most[0], most[1], most[2], most[3]});
  if (greatest == kNone) return kNone;
  double sum = 0;
  for (size_t word = 0; word < words; ++word) {
    Four of_word = {};
    for (const Four& v : WordOfLogits(logits, mask, word).values) of_word += Exp(v - greatest);
    sum += double{of_word[0]} + of_word[1] + of_word[2] + of_word[3];
  }
  return greatest + std::log(sum);
}

}  // namespace lm
