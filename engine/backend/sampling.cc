#include "engine/backend/sampling.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>

#include "absl/strings/str_cat.h"
#include "engine/backend/draw_weights.h"
#include "engine/base/random.h"
#include "engine/base/status_macros.h"

namespace lm {
namespace {

// Minus infinity of none. The magnitude's bits, complemented where the number is negative, order as
// the numbers do, and the greatest of integers is found by a loop that vectorises.
float GreatestOf(absl::Span<const float> logits) {
  constexpr int32_t kMagnitude = 0x7fffffff;
  int32_t greatest = std::bit_cast<int32_t>(-std::numeric_limits<float>::infinity()) ^ kMagnitude;
  for (float logit : logits) {
    const int32_t bits = std::bit_cast<int32_t>(logit);
    greatest = std::max(greatest, bits ^ ((bits >> 31) & kMagnitude));
  }
  return std::bit_cast<float>(greatest ^ ((greatest >> 31) & kMagnitude));
}

// The first of the greatest. REQUIRES: logits are finite.
int32_t ArgMax(absl::Span<const float> logits) {
  const float greatest = GreatestOf(logits);
  return static_cast<int32_t>(std::find(logits.begin(), logits.end(), greatest) - logits.begin());
}

// A string of a schema allows nearly all of a large vocabulary, so the greatest of a word's logits
// is found without a branch. REQUIRES: logits are finite.
int32_t AllowedArgMax(absl::Span<const float> logits, absl::Span<const uint64_t> allowed) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  float greatest = kNone;
  size_t best = 0;  // the word it is in
  for (size_t word = 0; word < allowed.size(); ++word) {
    const uint64_t bits = allowed[word];
    if (bits == 0) continue;
    const absl::Span<const float> own = logits.subspan(word * 64, 64);
    float most = kNone;
    for (size_t i = 0; i < own.size(); ++i) most = std::max(most, bits >> i & 1 ? own[i] : kNone);
    if (most > greatest) {
      greatest = most;
      best = word;
    }
  }
  for (uint64_t bits = allowed[best];; bits &= bits - 1) {
    const size_t token = best * 64 + std::countr_zero(bits);
    if (logits[token] == greatest) return static_cast<int32_t>(token);
  }
}

// A token that is a candidate with another logit than the model's.
struct ChangedToken {
  int32_t token;
  double logit;
};

// Sets `words` to the tokens that are allowed and have the model's logits, and returns the others
// that are allowed, in ascending order.
std::vector<ChangedToken> PartCandidates(absl::Span<const float> logits, const SamplingRow& row,
                                         std::vector<uint64_t>* words) {
  const size_t num_words = (logits.size() + 63) / 64;
  if (row.allowed.empty()) {
    words->assign(num_words, ~uint64_t{0});
    words->back() >>= num_words * 64 - logits.size();
  } else {
    words->assign(row.allowed.begin(), row.allowed.end());
    words->resize(num_words);
  }
  std::vector<ChangedToken> changed;
  for (const LogitAdjustment& change : AdjustmentsOf(row)) {
    uint64_t& word = (*words)[change.token / 64];
    const uint64_t bit = uint64_t{1} << change.token % 64;
    if ((word & bit) == 0) continue;
    word &= ~bit;
    changed.push_back(
        {change.token, AdjustedLogit(logits[change.token], change, row.options.repeat_penalty)});
  }
  return changed;
}

// The greatest of 64 logits, or fewer, among those that have a bit; minus infinity of none.
float GreatestOfWord(absl::Span<const float> logits, uint64_t bits) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  if (bits == 0) return kNone;
  if (~bits == 0) return GreatestOf(logits);
  float greatest = kNone;
  for (size_t i = 0; i < logits.size(); ++i) {
    greatest = std::max(greatest, bits >> i & 1 ? logits[i] : kNone);
  }
  return greatest;
}

// The greatest float that is not more, or the least that there is.
float NoMoreThan(double value) {
  constexpr float kLowest = std::numeric_limits<float>::lowest();
  if (value >= -double{kLowest}) return -kLowest;
  const auto rounded = static_cast<float>(std::max(value, double{kLowest}));
  return rounded > value ? std::nextafter(rounded, kLowest) : rounded;
}

// Logits that are less cannot be drawn, and no sum needs them: their weights are 0, or too little
// for min_p, or `top_k` others are greater. `greatest_of`: of each word's tokens.
float LeastDrawn(const SamplingOptions& options, double greatest,
                 absl::Span<const float> greatest_of, std::vector<float>* scratch) {
  double far = -kFarthest;  // below it, in units of the temperature
  if (options.top_p >= 1 && options.min_p > 0) far = std::min(far, 1 - std::log(options.min_p));
  const double inverse = InverseTemperature(options.temperature);
  const float least = NoMoreThan(greatest - far / inverse);
  const auto top_k = static_cast<size_t>(options.top_k);
  if (top_k == 0 || top_k > greatest_of.size()) return least;
  scratch->assign(greatest_of.begin(), greatest_of.end());
  std::nth_element(scratch->begin(), scratch->begin() + (top_k - 1), scratch->end(),
                   std::greater<float>());
  const double kth = (*scratch)[top_k - 1];
  // One with a lesser logit but the same weight may stand before it.
  const uint64_t weight = WeightOf(BelowGreatest(kth, greatest, inverse));
  if (weight < 2) return least;
  return std::max(least, NoMoreThan(kth - 2 / (static_cast<double>(weight) * inverse)));
}

uint64_t SumOfWeights(absl::Span<const uint64_t> keys) {
  uint64_t sum = 0;
  for (const uint64_t key : keys) sum += WeightOfKey(key);
  return sum;
}

// The last of the greatest keys that are needed for the sum. Leaves the keys in another order.
uint64_t LastNeeded(absl::Span<uint64_t> keys, uint64_t needed) {
  std::sort(keys.begin(), keys.end(), std::greater<uint64_t>());
  size_t last = 0;
  for (uint64_t sum = WeightOfKey(keys[0]); sum < needed; sum += WeightOfKey(keys[last])) ++last;
  return keys[last];
}

// The same, of many: only those of one bucket are sorted.
uint64_t LastNeededOfMany(absl::Span<const uint64_t> keys, uint64_t needed,
                          std::vector<uint64_t>* scratch) {
  std::array<uint64_t, kNumBuckets> sums = {};
  for (const uint64_t key : keys) sums[BucketOf(WeightOfKey(key))] += WeightOfKey(key);
  int bucket = kNumBuckets - 1;
  for (; sums[bucket] < needed; --bucket) needed -= sums[bucket];
  const uint64_t first = LeastOfBucket(bucket) << kTokenBits;
  const uint64_t end = LeastOfBucket(bucket + 1) << kTokenBits;
  scratch->clear();
  for (const uint64_t key : keys) {
    if (key >= first && key < end) scratch->push_back(key);
  }
  return LastNeeded(absl::MakeSpan(*scratch), needed);
}

// The least key that top_k, top_p and min_p keep.
uint64_t LeastKept(const SamplingOptions& options, absl::Span<const uint64_t> keys,
                   std::vector<uint64_t>* scratch) {
  const auto top_k = static_cast<size_t>(options.top_k);
  uint64_t least = ShareOf(options.min_p, kGreatestWeight) << kTokenBits;
  if (top_k == 0 || top_k >= keys.size()) {
    if (options.top_p >= 1) return least;
    const uint64_t needed = ShareOf(options.top_p, SumOfWeights(keys));
    return std::max(least, LastNeededOfMany(keys, needed, scratch));
  }
  scratch->assign(keys.begin(), keys.end());
  const absl::Span<uint64_t> first = absl::MakeSpan(*scratch).first(top_k);
  std::nth_element(scratch->begin(), scratch->begin() + (top_k - 1), scratch->end(),
                   std::greater<uint64_t>());
  least = std::max(least, first.back());
  if (options.top_p >= 1) return least;
  return std::max(least, LastNeeded(first, ShareOf(options.top_p, SumOfWeights(first))));
}

// Appends the keys of 64 tokens from `first` on, or fewer, that have a bit and any weight.
void AppendKeys(absl::Span<const float> logits, int32_t first, uint64_t bits, double greatest,
                double inverse_temperature, uint64_t* keys, size_t* count) {
  uint64_t weights[kMostWeights];
  DrawWeights(logits, greatest, inverse_temperature, weights);
  for (size_t i = 0; i < logits.size(); ++i) {
    keys[*count] = DrawKey(weights[i], first + static_cast<int32_t>(i));
    *count += (bits >> i & 1) != 0 && weights[i] > 0 ? 1 : 0;
  }
}

// The keys of what may be drawn, in ascending order of tokens.
absl::Span<const uint64_t> ListKeys(absl::Span<const float> logits,
                                    absl::Span<const ChangedToken> changed, double greatest,
                                    const SamplingOptions& options, DrawScratch* scratch) {
  const float least = LeastDrawn(options, greatest, scratch->greatest_of, &scratch->sorted);
  const double inverse = InverseTemperature(options.temperature);
  std::vector<uint64_t>& keys = scratch->keys;
  keys.resize(std::max(keys.size(), logits.size() + 1));  // what is not kept is written, too
  size_t count = 0;
  for (size_t word = 0; word < scratch->allowed.size(); ++word) {
    const size_t before = count;
    const auto first = static_cast<int32_t>(word * 64);
    if (scratch->greatest_of[word] >= least) {
      AppendKeys(logits.subspan(word * 64, 64), first, scratch->allowed[word], greatest, inverse,
                 keys.data(), &count);
    }
    const size_t own = count;
    for (; !changed.empty() && changed[0].token < first + 64; changed.remove_prefix(1)) {
      const uint64_t weight = WeightOf(BelowGreatest(changed[0].logit, greatest, inverse));
      if (weight > 0) keys[count++] = DrawKey(weight, changed[0].token);
    }
    if (own == count) continue;
    std::inplace_merge(keys.begin() + before, keys.begin() + own, keys.begin() + count,
                       [](uint64_t a, uint64_t b) { return TokenOfKey(a) < TokenOfKey(b); });
  }
  return absl::MakeConstSpan(keys).first(count);
}

// REQUIRES: `keys` is in ascending order of tokens, and not empty.
int32_t Draw(const SamplingRow& row, absl::Span<const uint64_t> keys,
             std::vector<uint64_t>* scratch) {
  const uint64_t least = LeastKept(row.options, keys, scratch);
  uint64_t total = 0;
  for (const uint64_t key : keys) total += key >= least ? WeightOfKey(key) : 0;
  uint64_t place = DrawnPlace(RandomBits(row.options.seed, row.context.size()), total);
  for (const uint64_t key : keys) {
    if (key < least) continue;
    if (place < WeightOfKey(key)) return TokenOfKey(key);
    place -= WeightOfKey(key);
  }
  return TokenOfKey(keys.back());  // not reached: place < total
}

}  // namespace

float MarginOf(absl::Span<const float> logits, int32_t token) {
  const float next =
      std::max(GreatestOf(logits.first(token)), GreatestOf(logits.subspan(token + 1)));
  const float margin = logits[token] - next;
  return margin > 0 ? margin : 0;
}

absl::Status CheckFinite(absl::Span<const float> all, size_t first, size_t count) {
  const absl::Span<const float> logits = all.subspan(first, count);
  // All ones in the exponent: infinite or NaN. Without a branch, so that the loop vectorises.
  constexpr uint32_t kExponent = 0x7f800000;
  uint32_t any = 0;
  for (float logit : logits) any |= (std::bit_cast<uint32_t>(logit) & kExponent) == kExponent;
  if (any == 0) return absl::OkStatus();
  const auto bad =
      std::find_if(logits.begin(), logits.end(), [](float logit) { return !std::isfinite(logit); });
  return absl::InternalError(absl::StrCat("the model's logit of token ", bad - all.begin(),
                                          " must be finite, got ", *bad));
}

absl::StatusOr<int32_t> SampleToken(absl::Span<const float> logits, const SamplingRow& row,
                                    DrawScratch* scratch) {
  const SamplingOptions& options = row.options;
  const absl::Span<const uint64_t> allowed = row.allowed;
  if (allowed.empty()) RETURN_IF_ERROR(CheckFinite(logits));
  for (size_t word = 0; word < allowed.size(); ++word) {
    if (allowed[word] != 0) RETURN_IF_ERROR(CheckFinite(logits, 64 * word, 64));
  }
  const bool adjusted = options.repeat_penalty != 1 || !options.logit_bias.empty();
  if (options.temperature == 0 && !adjusted) {
    return allowed.empty() ? ArgMax(logits) : AllowedArgMax(logits, allowed);
  }

  if (options.temperature > 0 && logits.size() > kMostDrawnTokens) {
    return absl::UnimplementedError(
        absl::StrCat("a token is drawn of ", kMostDrawnTokens, " at most, got ", logits.size()));
  }
  const std::vector<ChangedToken> changed = PartCandidates(logits, row, &scratch->allowed);
  std::vector<float>& greatest_of = scratch->greatest_of;
  greatest_of.resize(scratch->allowed.size());
  for (size_t word = 0; word < greatest_of.size(); ++word) {
    greatest_of[word] = GreatestOfWord(logits.subspan(word * 64, 64), scratch->allowed[word]);
  }
  const auto best = std::max_element(greatest_of.begin(), greatest_of.end());
  double greatest = *best;
  for (const ChangedToken& c : changed) greatest = std::max(greatest, c.logit);
  if (options.temperature > 0) {
    return Draw(row, ListKeys(logits, changed, greatest, options, scratch), &scratch->keys_sorted);
  }
  int32_t token = std::numeric_limits<int32_t>::max();  // the first of the greatest
  for (const ChangedToken& c : changed) {
    if (c.logit == greatest) token = std::min(token, c.token);
  }
  if (*best == greatest) {
    const size_t word = best - greatest_of.begin();
    for (uint64_t bits = scratch->allowed[word];; bits &= bits - 1) {
      const auto own = static_cast<int32_t>(word * 64) + std::countr_zero(bits);
      if (logits[own] == greatest) return std::min(token, own);
    }
  }
  return token;
}

std::vector<LogitAdjustment> AdjustmentsOf(const SamplingRow& row) {
  std::vector<LogitAdjustment> all;
  for (const auto& [token, bias] : row.options.logit_bias) {
    all.push_back({BoundedLogit(bias), token, 0});
  }
  if (row.options.repeat_penalty != 1) {
    const size_t window = std::min<size_t>(row.context.size(), kRepeatWindow);
    for (const int32_t token : row.context.last(window)) all.push_back({0, token, 1});
  }
  std::stable_sort(all.begin(), all.end(), [](const LogitAdjustment& a, const LogitAdjustment& b) {
    return a.token < b.token;
  });
  size_t kept = 0;
  for (const LogitAdjustment& change : all) {
    if (kept > 0 && all[kept - 1].token == change.token) {
      all[kept - 1].bias += change.bias;
      all[kept - 1].penalised |= change.penalised;
    } else {
      all[kept++] = change;
    }
  }
  all.resize(kept);
  return all;
}

}  // namespace lm
