#include "engine/runtime/fair_queue.h"

#include <iterator>
#include <utility>

namespace lm {
namespace {

// In tokens.
int64_t LongestAnswer(const Sequence& sequence) {
  const bool answers = !sequence.scoring() && !sequence.embedding();
  return answers ? TokensBesidePrompt(sequence.request().spec().options) : 0;
}

}  // namespace

FairQueue::Lane& FairQueue::LaneOf(const Sequence& sequence) {
  std::string salt(sequence.salt());
  const auto found = by_salt_.find(salt);
  if (found != by_salt_.end()) return *found->second;
  const auto lane = lanes_.insert(lanes_.end(), Lane{.salt = salt, .waiting = {}});
  by_salt_.emplace(std::move(salt), lane);
  return *lane;
}

void FairQueue::PushBack(std::unique_ptr<Sequence> sequence) {
  Lane& lane = LaneOf(*sequence);
  auto place = lane.waiting.end();
  const int64_t longest = LongestAnswer(*sequence);
  while (place != lane.waiting.begin()) {
    const Sequence& before = **std::prev(place);
    const absl::Duration older = sequence->request().submitted() - before.request().submitted();
    if (LongestAnswer(before) >= longest || older > kOvertaking) break;
    --place;
  }
  lane.waiting.insert(place, std::move(sequence));
  ++size_;
}

void FairQueue::PushFront(std::unique_ptr<Sequence> sequence) {
  Lane& lane = LaneOf(*sequence);
  lanes_.splice(lanes_.begin(), lanes_, by_salt_.at(lane.salt));
  lane.waiting.push_front(std::move(sequence));
  lane.scanned = 0;
  ++size_;
}

void FairQueue::BeginScan() {
  for (Lane& lane : lanes_) lane.scanned = 0;
}

std::unique_ptr<Sequence> FairQueue::TakeNext(absl::FunctionRef<bool(const Sequence&)> may_go) {
  for (auto lane = lanes_.begin(); lane != lanes_.end(); ++lane) {
    for (; lane->scanned < lane->waiting.size() && lane->scanned < kLookAhead; ++lane->scanned) {
      const auto position = lane->waiting.begin() + lane->scanned;
      if (!may_go(**position)) continue;
      std::unique_ptr<Sequence> taken = std::move(*position);
      lane->waiting.erase(position);
      --size_;
      if (lane->waiting.empty()) {
        by_salt_.erase(lane->salt);
        lanes_.erase(lane);
      } else {
        lanes_.splice(lanes_.end(), lanes_, lane);
      }
      return taken;
    }
  }
  return nullptr;
}

std::vector<std::unique_ptr<Sequence>> FairQueue::TakeIf(
    absl::FunctionRef<bool(const Sequence&)> condition) {
  std::vector<std::unique_ptr<Sequence>> taken;
  for (auto lane = lanes_.begin(); lane != lanes_.end();) {
    std::deque<std::unique_ptr<Sequence>> kept;
    for (std::unique_ptr<Sequence>& sequence : lane->waiting) {
      (condition(*sequence) ? taken.emplace_back() : kept.emplace_back()) = std::move(sequence);
    }
    lane->waiting = std::move(kept);
    lane->scanned = 0;
    if (lane->waiting.empty()) {
      by_salt_.erase(lane->salt);
      lane = lanes_.erase(lane);
    } else {
      ++lane;
    }
  }
  size_ -= taken.size();
  return taken;
}

}  // namespace lm
