#include "engine/grammar/code_point_set.h"

#include <algorithm>

namespace lm {
namespace {

constexpr uint32_t kFirst = 1;
constexpr uint32_t kLast = 0x10ffff;
constexpr uint32_t kSurrogates = 0xd800;
constexpr uint32_t kAfterSurrogates = 0xe000;

}  // namespace

CodePointSet CodePointSet::All() { return Of(kFirst, kLast); }

void CodePointSet::Add(uint32_t low, uint32_t high) {
  low = std::max(low, kFirst);
  high = std::min(high, kLast);
  auto push = [this](uint32_t from, uint32_t to) {
    if (from > to) return;
    ranges_.push_back({from, to});
    normal_ = false;
  };
  push(low, std::min(high, kSurrogates - 1));
  push(std::max(low, kAfterSurrogates), high);
}

void CodePointSet::Add(const CodePointSet& other) {
  for (const Range& range : other.ranges()) Add(range.low, range.high);
}

void CodePointSet::Normalize() const {
  if (normal_) return;
  std::sort(ranges_.begin(), ranges_.end(),
            [](const Range& a, const Range& b) { return a.low < b.low; });
  size_t last = 0;
  for (size_t i = 1; i < ranges_.size(); ++i) {
    if (ranges_[i].low <= ranges_[last].high + 1) {
      ranges_[last].high = std::max(ranges_[last].high, ranges_[i].high);
    } else {
      ranges_[++last] = ranges_[i];
    }
  }
  ranges_.resize(last + 1);
  normal_ = true;
}

const std::vector<CodePointSet::Range>& CodePointSet::ranges() const {
  Normalize();
  return ranges_;
}

CodePointSet CodePointSet::Complement() const {
  CodePointSet result;
  uint32_t next = kFirst;
  for (const Range& range : ranges()) {
    if (range.low > next) result.Add(next, range.low - 1);
    next = range.high + 1;
  }
  result.Add(next, kLast);
  return result;
}

CodePointSet CodePointSet::Intersect(const CodePointSet& other) const {
  CodePointSet result;
  auto a = ranges().begin();
  auto b = other.ranges().begin();
  while (a != ranges_.end() && b != other.ranges_.end()) {
    uint32_t low = std::max(a->low, b->low), high = std::min(a->high, b->high);
    if (low <= high) result.Add(low, high);
    if (a->high < b->high) {
      ++a;
    } else {
      ++b;
    }
  }
  return result;
}

bool CodePointSet::Contains(uint32_t code_point) const {
  const std::vector<Range>& all = ranges();
  auto after = std::upper_bound(all.begin(), all.end(), code_point,
                                [](uint32_t c, const Range& range) { return c < range.low; });
  return after != all.begin() && code_point <= std::prev(after)->high;
}

}  // namespace lm
