#include "engine/text/merge_queue.h"

#include <algorithm>
#include <utility>

namespace lm {
namespace {

bool IsLater(const MergeQueue::Candidate& a, const MergeQueue::Candidate& b) {
  return a.order > b.order;
}

}  // namespace

void MergeQueue::Clear(bool large) {
  due_priority_ = large ? 0 : UINT32_MAX;
  due_.clear();
  list_.clear();
  next_ = 0;
  waiting_.clear();
}

void MergeQueue::Push(const Candidate& candidate) {
  const uint32_t priority = static_cast<uint32_t>(candidate.order >> 32);
  if (priority > due_priority_) {
    waiting_[priority].push_back({static_cast<uint32_t>(candidate.order), candidate.size});
    return;
  }
  due_.push_back(candidate);
  std::push_heap(due_.begin(), due_.end(), IsLater);
}

bool MergeQueue::Pop(Candidate* candidate) {
  if (due_.empty() && next_ == list_.size()) {
    if (waiting_.empty()) return false;
    auto first = waiting_.begin();
    due_priority_ = first->first;
    list_ = std::move(first->second);
    next_ = 0;
    waiting_.erase(first);
    auto is_earlier = [](const Waiting& a, const Waiting& b) { return a.left < b.left; };
    if (!std::is_sorted(list_.begin(), list_.end(), is_earlier)) {
      std::sort(list_.begin(), list_.end(), is_earlier);
    }
  }
  if (next_ < list_.size()) {
    const Waiting& first = list_[next_];
    const uint64_t order = uint64_t{due_priority_} << 32 | first.left;
    if (due_.empty() || order < due_.front().order) {
      *candidate = {order, first.size, kUnknown};
      ++next_;
      return true;
    }
  }
  *candidate = due_.front();
  std::pop_heap(due_.begin(), due_.end(), IsLater);
  due_.pop_back();
  return true;
}

}  // namespace lm
