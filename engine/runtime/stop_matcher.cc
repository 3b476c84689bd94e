#include "engine/runtime/stop_matcher.h"

#include <algorithm>
#include <cassert>

namespace lm {

StopMatcher::StopMatcher(const std::vector<std::string>& stops) {
  for (const std::string& stop : stops) {
    assert(!stop.empty());
    Pattern& pattern = patterns_.emplace_back();
    pattern.text = stop;
    pattern.border.assign(stop.size(), 0);
    for (size_t i = 1; i < stop.size(); ++i) {
      int32_t n = pattern.border[i - 1];
      while (n > 0 && stop[i] != stop[n]) n = pattern.border[n - 1];
      pattern.border[i] = n + (stop[i] == stop[n]);
    }
  }
}

bool StopMatcher::Append(absl::string_view piece, std::string* out) {
  if (patterns_.empty()) {
    out->append(piece.data(), piece.size());
    return false;
  }
  size_t keep = 0;  // bytes at the end of held_ that may begin a stop string
  for (char c : piece) {
    held_.push_back(c);
    size_t complete = 0;
    keep = 0;
    for (Pattern& p : patterns_) {
      while (p.matched > 0 && p.text[p.matched] != c) p.matched = p.border[p.matched - 1];
      if (p.text[p.matched] == c) ++p.matched;
      if (p.matched == static_cast<int32_t>(p.text.size())) {
        complete = std::max(complete, p.text.size());
      }
      keep = std::max<size_t>(keep, p.matched);
    }
    if (complete > 0) {
      out->append(held_, 0, held_.size() - complete);
      held_.clear();
      matched_ = true;
      return true;
    }
  }
  if (!piece.empty()) {
    out->append(held_, 0, held_.size() - keep);
    held_.erase(0, held_.size() - keep);
  }
  return false;
}

void StopMatcher::Flush(std::string* out) {
  out->append(held_);
  held_.clear();
}

}  // namespace lm
