#include "extension/batch/guess_width.h"

#include <algorithm>

namespace lm {
namespace {

// How many calls are under way at first.
constexpr size_t kFirstOfSelect = 2;
constexpr size_t kFirstOfWrite = 8;  // whose calls may depend on one another
constexpr size_t kMostAhead = 4096;  // calls foreseen where others depend on their answers
constexpr size_t kFirstInStep = 64;
// A recursion that ends by an answer does not end by its absence.
constexpr int64_t kMostCallsOfStep = 1 << 19;
constexpr int64_t kTolerated = 16;  // wrong guesses that are nothing to worry about
constexpr int kMostDoublings = 10;

}  // namespace

void GuessWidth::Begin(const Bounds& bounds) {
  bounds_ = bounds;
  width_ = !bounds.to_its_end   ? kFirstOfSelect
           : bounds.independent ? bounds.most_under_way
                                : kFirstOfWrite;
}

// That a place of the statement has asked about, the one that is asked about now among them. Of
// calls whose place is not known, each place has had its share.
int64_t GuessWidth::NumRows() const {
  const auto sites = static_cast<int64_t>(std::max<size_t>(bounds_.num_sites, 1));
  return most_hits_ + (bounds_.num_calls + num_placeless_ + sites - 1) / sites;
}

size_t GuessWidth::MostOfPlace() const {
  if (!bounds_.limit.has_value()) return kMostAhead;
  const auto rows = static_cast<size_t>(NumRows());
  return rows <= *bounds_.limit ? *bounds_.limit - rows : rows;
}

size_t GuessWidth::MostAhead(bool dependent) const {
  const size_t most = dependent ? kMostAhead : width_;
  return std::min(most, MostOfPlace() * std::max<size_t>(bounds_.num_sites, 1));
}

size_t GuessWidth::MostInStep(bool dependent) const {
  const size_t most =
      dependent ? kMostAhead : std::clamp<size_t>(16 * width_, kFirstInStep, kMostAhead);
  return most << std::min(num_full_steps_, kMostDoublings);
}

int64_t GuessWidth::MostCallsOfStep() const {
  return kMostCallsOfStep << std::min(num_full_steps_, kMostDoublings);
}

void GuessWidth::CountHit(const void* site) {
  ++num_hits_;
  width_ = std::min(2 * width_, bounds_.most_under_way);
  if (site != nullptr) {
    most_hits_ = std::max(most_hits_, ++num_hits_of_[site]);
  } else {
    ++num_placeless_;
  }
}

void GuessWidth::CountMiss(bool missing) {
  ++num_placeless_;
  num_missing_ += missing;
}

void GuessWidth::Narrow() { width_ = std::max<size_t>(width_ / 4, 1); }

bool GuessWidth::IsMostlyWrong() const { return num_wrong_ > kTolerated && num_wrong_ > num_hits_; }

bool GuessWidth::IsMostlyMissing() const {
  return num_missing_ > kTolerated && num_missing_ > num_hits_;
}

}  // namespace lm
