#include "engine/backend/sampling.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "engine/base/random.h"
#include "engine/base/status_macros.h"

namespace lm {
namespace {

// Keeps adjusted logits so small that differences of two are finite.
constexpr double kGreatestLogit = 1e300;
double Bounded(double logit) { return std::clamp(logit, -kGreatestLogit, kGreatestLogit); }

struct Candidate {
  double weight;  // a logit at first, then a probability that is not normalised
  int32_t token;
};
using Candidates = std::vector<Candidate>;

// Whether `a` stands before `b`: more weight, or the lower id.
bool Before(const Candidate& a, const Candidate& b) {
  return a.weight != b.weight ? a.weight > b.weight : a.token < b.token;
}

// For the heap functions, which keep the greatest in front.
bool After(const Candidate& a, const Candidate& b) { return Before(b, a); }

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

// Calls take(token) for every bit of the mask, in ascending order.
template <typename Take>
void ForEachAllowed(absl::Span<const uint64_t> allowed, Take take) {
  for (size_t word = 0; word < allowed.size(); ++word) {
    for (uint64_t bits = allowed[word]; bits != 0; bits &= bits - 1) {
      take(static_cast<int32_t>(word * 64 + std::countr_zero(bits)));
    }
  }
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

void Adjust(const SamplingOptions& options, absl::Span<const int32_t> context, Candidates* logits) {
  // Calls change(logit) where the token is a candidate; they stand in ascending order.
  auto adjust = [logits](int32_t token, auto change) {
    const auto at = std::lower_bound(logits->begin(), logits->end(), token,
                                     [](const Candidate& c, int32_t t) { return c.token < t; });
    if (at != logits->end() && at->token == token) at->weight = Bounded(change(at->weight));
  };
  if (options.repeat_penalty != 1) {
    const size_t window = std::min<size_t>(context.size(), kRepeatWindow);
    std::vector<int32_t> recent(context.end() - window, context.end());
    std::sort(recent.begin(), recent.end());
    recent.erase(std::unique(recent.begin(), recent.end()), recent.end());
    for (int32_t token : recent) {
      adjust(token, [&options](double logit) {
        return logit > 0 ? logit / options.repeat_penalty : logit * options.repeat_penalty;
      });
    }
  }
  for (const auto& [token, bias] : options.logit_bias) {
    adjust(token, [bias = bias](double logit) { return logit + bias; });
  }
}

int32_t Draw(const SamplingOptions& options, uint64_t position, Candidates* candidates) {
  Candidates& all = *candidates;
  if (options.top_k > 0 && static_cast<size_t>(options.top_k) < all.size()) {
    std::nth_element(all.begin(), all.begin() + options.top_k - 1, all.end(), Before);
    all.resize(options.top_k);
    // Which order nth_element leaves is the library's business; sums must not depend on it.
    std::sort(all.begin(), all.end(), Before);
  }
  double greatest = all[0].weight;
  for (const Candidate& c : all) greatest = std::max(greatest, c.weight);
  double total = 0;
  for (Candidate& c : all) {
    c.weight = std::exp((c.weight - greatest) / options.temperature);
    total += c.weight;  // the greatest is exp(0) = 1
  }

  // top_p and min_p both keep a beginning of the order by probability: take from a heap that long.
  size_t kept = all.size();
  if (options.top_p < 1 || options.min_p > 0) {
    std::make_heap(all.begin(), all.end(), After);
    kept = 0;
    double mass = 0;
    // The taken ones gather at the end of the vector, the most probable last.
    for (auto end = all.end(); end != all.begin(); --end) {
      const bool full = options.top_p < 1 && mass >= options.top_p * total;
      if (kept > 0 && (full || all.front().weight < options.min_p)) break;
      mass += all.front().weight;
      std::pop_heap(all.begin(), end, After);
      ++kept;
    }
    std::reverse(all.end() - kept, all.end());
    total = mass;
  }

  double target = RandomUniform(options.seed, position) * total;
  const auto first = all.end() - kept;
  for (auto it = first; it != all.end(); ++it) {
    target -= it->weight;
    if (target < 0) return it->token;
  }
  // Rounding left a rest: the last one that has any probability.
  auto last = all.end() - 1;
  while (last != first && last->weight == 0) --last;
  return last->token;
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

absl::StatusOr<int32_t> SampleToken(absl::Span<const float> logits, const SamplingRow& row) {
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

  Candidates candidates;
  if (allowed.empty()) {
    candidates.reserve(logits.size());
    for (size_t i = 0; i < logits.size(); ++i) {
      candidates.push_back({logits[i], static_cast<int32_t>(i)});
    }
  } else {
    ForEachAllowed(allowed, [&](int32_t token) { candidates.push_back({logits[token], token}); });
  }
  Adjust(options, row.context, &candidates);
  if (options.temperature == 0) {
    return std::min_element(candidates.begin(), candidates.end(), Before)->token;
  }
  return Draw(options, row.context.size(), &candidates);
}

}  // namespace lm
