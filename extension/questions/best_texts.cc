#include "extension/questions/best_texts.h"

#include <algorithm>
#include <utility>

namespace lm {
namespace {

bool IsBetter(const BestTexts::Scored& a, const BestTexts::Scored& b) {
  return a.score != b.score ? a.score > b.score : a.number < b.number;
}

}  // namespace

void BestTexts::Add(double score, std::string text) {
  heap_.push_back({score, std::move(text), added_++});
  std::push_heap(heap_.begin(), heap_.end(), IsBetter);
  if (static_cast<int64_t>(heap_.size()) <= most_) return;
  std::pop_heap(heap_.begin(), heap_.end(), IsBetter);
  heap_.pop_back();
}

std::vector<BestTexts::Scored> BestTexts::Take() {
  std::sort_heap(heap_.begin(), heap_.end(), IsBetter);
  return std::exchange(heap_, {});
}

}  // namespace lm
