#include "engine/runtime/ngram_index.h"

#include <algorithm>

#include "engine/base/random.h"

namespace lm {

size_t NgramIndex::Bucket(int32_t first, int32_t second) const {
  const uint64_t pair =
      uint64_t{static_cast<uint32_t>(first)} << 32 | static_cast<uint32_t>(second);
  return RandomBits(pair, 0) & (last_.size() - 1);
}

void NgramIndex::Link(size_t end) {
  if (end == 0 || tokens_[end] == kBorder || tokens_[end - 1] == kBorder) return;
  int32_t& last = last_[Bucket(tokens_[end - 1], tokens_[end])];
  before_[end] = last;
  last = static_cast<int32_t>(end);
}

void NgramIndex::Rebuild(size_t buckets) {
  last_.assign(buckets, -1);
  before_.assign(tokens_.size(), -1);
  for (size_t end = 0; end < tokens_.size(); ++end) Link(end);
}

void NgramIndex::Append(absl::Span<const int32_t> tokens) {
  const size_t begin = tokens_.size();
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  if (tokens_.size() > last_.size()) {
    size_t buckets = 64;
    while (buckets < 2 * tokens_.size()) buckets *= 2;
    return Rebuild(buckets);
  }
  before_.resize(tokens_.size(), -1);
  for (size_t end = begin; end < tokens_.size(); ++end) Link(end);
}

void NgramIndex::DropFirst(size_t count) {
  tokens_.erase(tokens_.begin(), tokens_.begin() + std::min(count, tokens_.size()));
  Rebuild(last_.size());
}

NgramIndex::Match NgramIndex::Find(absl::Span<const int32_t> context) const {
  constexpr int kMostLookedAt = 32;
  Match best;
  if (context.size() < kLeast || last_.empty()) return best;
  int32_t end = last_[Bucket(context[context.size() - 2], context.back())];
  const int32_t longest = std::min<int32_t>(kLongest, static_cast<int32_t>(context.size()));
  for (int i = 0; i < kMostLookedAt && end >= 0 && best.length < kLongest;
       ++i, end = before_[end]) {
    const size_t next = static_cast<size_t>(end) + 1;
    if (next >= tokens_.size() || tokens_[next] == kBorder) continue;
    int32_t length = 0;
    while (length < longest && length <= end &&
           tokens_[end - length] == context[context.size() - 1 - length]) {
      ++length;
    }
    if (length >= kLeast && length > best.length) best = {.length = length, .end = end};
  }
  return best;
}

std::vector<int32_t> NgramIndex::Continuation(const Match& match, int32_t most) const {
  std::vector<int32_t> result;
  for (size_t at = match.end + 1; static_cast<int32_t>(result.size()) < most; ++at) {
    const int32_t token = at < tokens_.size() ? tokens_[at] : result[at - tokens_.size()];
    if (token == kBorder) break;
    result.push_back(token);
  }
  return result;
}

}  // namespace lm
