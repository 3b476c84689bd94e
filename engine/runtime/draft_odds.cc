#include "engine/runtime/draft_odds.h"

#include <algorithm>

namespace lm {

DraftOdds::DraftOdds() {
  constexpr double kAtFirst = 0.5;
  for (auto& kinds : odds_) kinds.fill({.share = kAtFirst, .seen = 0});
}

double DraftOdds::Of(int32_t kind, bool drawn) const {
  const auto& kinds = odds_[drawn];
  constexpr int32_t kByMargin = ModelDrafter::kFirstMarginKind;
  if (kind >= kByMargin && kinds[kind].seen == 0) {
    const int32_t of_first = kByMargin + (kind - kByMargin) % ModelDrafter::kMarginKinds;
    const bool later = kind != of_first;
    if (kinds[of_first].seen == 0) return Of(ModelDrafter::kFirstKind + later, drawn);
    kind = of_first;
  }
  while (kind > ModelDrafter::kFirstKind && kinds[kind].seen == 0) --kind;
  return kinds[kind].share;
}

void DraftOdds::Record(int32_t kind, bool drawn, bool right) {
  constexpr double kMostSeen = 200;  // what lies further back is forgotten
  constexpr double kAssumed = 4;     // so many guesses is the first opinion worth
  Share& odds = odds_[drawn][kind];
  if (odds.seen == 0) odds.share = Of(kind, drawn);
  odds.seen = std::min(odds.seen + 1, kMostSeen);
  odds.share += (right - odds.share) / (odds.seen + kAssumed);
}

double RowOdds::factor() const {
  constexpr double kAssumed = 2, kMost = 1.25;
  return std::min((right_ + kAssumed) / (expected_ + kAssumed), kMost);
}

void RowOdds::Record(double odds, bool right) {
  constexpr double kKept = 0.95;  // for the next guess
  expected_ = expected_ * kKept + odds;
  right_ = right_ * kKept + right;
}

}  // namespace lm
