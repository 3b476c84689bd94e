#include "engine/grammar/state_machine.h"

#include <algorithm>
#include <limits>

#include "engine/base/random.h"

namespace lm {
namespace {

// Work for a frame that is looked at: it is hashed and sorted.
constexpr int64_t kFrameWork = 150;
constexpr int64_t kStateWork = 1000;
constexpr int64_t kTransitionWork = 100;
// What a map node and its bookkeeping cost besides the frames.
constexpr size_t kEntryBytes = 96;

// So that so many more can be added without an allocation.
template <typename T>
void MakeRoom(size_t more, std::vector<T>* values) {
  const size_t wanted = values->size() + more;
  if (wanted > values->capacity()) values->reserve(std::max(wanted, 2 * values->capacity()));
}

}  // namespace

StateMachine::StateMachine(const Automaton* automaton)
    : automaton_(*automaton), num_classes_(automaton->num_classes()) {
  const StackId bottom = InternStack({{kAccept, 0}});
  start_ = Close({{automaton_.rule_start[automaton_.root], bottom}});
}

void StateMachine::Resume(int64_t work) {
  work_left_ = work;
  paused_ = false;
  exhausted_ = false;
}

bool StateMachine::Look(size_t frames) {
  looked_at_ += frames;
  exhausted_ = exhausted_ || looked_at_ > kMaxStateWork / kFrameWork;
  return !exhausted_;
}

// A sum, so that the order, which is that of this machine's numbers, does not matter.
uint64_t StateMachine::DigestOf(absl::Span<const Frame> frames) const {
  uint64_t digest = 0;
  for (const Frame& frame : frames) {
    const uint64_t below = frame.node == kAccept ? 0 : stacks_[frame.stack].digest;
    digest += RandomBits(below, static_cast<uint64_t>(frame.node));
  }
  return digest;
}

int32_t StateMachine::DistanceOf(const Frame& frame) const {
  if (frame.node == kAccept) return 0;
  return std::min(automaton_.distance[frame.node] + stacks_[frame.stack].distance, Automaton::kFar);
}

int32_t StateMachine::DistanceOf(absl::Span<const Frame> frames) const {
  int32_t least = Automaton::kFar;
  for (const Frame& frame : frames) least = std::min(least, DistanceOf(frame));
  return least;
}

uint8_t StateMachine::NearerByte(StateId state) const {
  int least = 255;
  for (const Frame& frame : states_[state].frames) {
    if (DistanceOf(frame) == states_[state].distance) {
      least = std::min<int>(least, automaton_.nodes[frame.node].low);
    }
  }
  return static_cast<uint8_t>(least);
}

StackId StateMachine::InternStack(Frames frames) {
  std::sort(frames.begin(), frames.end());
  frames.erase(std::unique(frames.begin(), frames.end()), frames.end());
  MakeRoom(1, &stacks_);  // a number that is known has its stack, also where memory runs out
  auto [at, is_new] = stack_ids_.try_emplace(std::move(frames), stacks_.size());
  if (is_new) {
    stacks_.push_back({at->first, DistanceOf(at->first), DigestOf(at->first)});
    bytes_ += kEntryBytes + at->first.size() * sizeof(Frame);
  }
  return at->second;
}

StateId StateMachine::InternState(Frames frames, bool can_end) {
  std::sort(frames.begin(), frames.end());
  // A number that is known has its state, also where memory runs out.
  MakeRoom(1, &states_);
  MakeRoom(num_classes_, &transitions_);
  stacks_of_state_.clear();
  MakeRoom(frames.size(), &stacks_of_state_);
  auto [at, is_new] = state_ids_.try_emplace({std::move(frames), can_end}, states_.size());
  if (is_new) {
    const Frames& kept = at->first.first;
    int forced = can_end || kept.empty() ? -1 : automaton_.nodes[kept[0].node].low;
    for (const Frame& frame : kept) {
      const Node& node = automaton_.nodes[frame.node];
      if (node.low != forced || node.high != forced) forced = -1;
    }
    const size_t own =
        sizeof(State) + kEntryBytes + kept.size() * sizeof(Frame) + num_classes_ * sizeof(StateId);
    // With the stacks that it stands on: most are made for it.
    for (const Frame& frame : kept) stacks_of_state_.push_back(frame.stack);
    std::sort(stacks_of_state_.begin(), stacks_of_state_.end());
    size_t below = 0;
    for (size_t i = 0; i < stacks_of_state_.size(); ++i) {
      if (i > 0 && stacks_of_state_[i] == stacks_of_state_[i - 1]) continue;
      below += kEntryBytes + stacks_[stacks_of_state_[i]].frames.size() * sizeof(Frame);
    }
    states_.push_back(
        {kept, can_end, static_cast<int16_t>(forced),
         static_cast<uint32_t>(std::min<size_t>(own + below, std::numeric_limits<uint32_t>::max())),
         can_end ? 0 : DistanceOf(kept), DigestOf(kept) + can_end});
    transitions_.resize(transitions_.size() + num_classes_, kUnknown);
    bytes_ += own;
  }
  return at->second;
}

StateId StateMachine::ComputeNext(StateId state, int byte_class) {
  const size_t first = size_t{static_cast<uint32_t>(state)} * num_classes_;
  if (transitions_[first + byte_class] == kTooLarge) exhausted_ = true;
  if (work_left_ <= 0) paused_ = true;
  if (stopped()) return kNoState;
  looked_at_ = 0;
  const absl::Span<const Frame> frames = states_[state].frames;
  const uint8_t byte = automaton_.representative[byte_class];
  seeds_.clear();
  int low = 0, high = 255;  // the bytes that no frame tells apart from this one
  for (const Frame& frame : frames) {
    const Node& node = automaton_.nodes[frame.node];
    if (byte < node.low) {
      high = std::min(high, node.low - 1);
    } else if (byte > node.high) {
      low = std::max(low, node.high + 1);
    } else {
      low = std::max<int>(low, node.low);
      high = std::min<int>(high, node.high);
      seeds_.push_back({node.next, frame.stack});
    }
  }
  work_left_ -= kTransitionWork + static_cast<int64_t>(frames.size());
  StateId next = kNoState;
  if (auto known = closed_.find(seeds_); known != closed_.end()) {
    next = known->second;
  } else if (!seeds_.empty()) {
    next = Close(seeds_);
    work_left_ -= kStateWork + kFrameWork * static_cast<int64_t>(looked_at_);
    if (!exhausted_) {
      closed_.emplace(seeds_, next);
      bytes_ += kEntryBytes + seeds_.size() * sizeof(Frame);
    }
  }
  std::fill(transitions_.begin() + first + automaton_.class_of_byte[low],
            transitions_.begin() + first + automaton_.class_of_byte[high] + 1,
            exhausted_ ? kTooLarge : next);
  return next;
}

void StateMachine::Follow(bool in_new_rule) {
  while (!work_.empty()) {
    const Frame frame = work_.back();
    work_.pop_back();
    if (frame.node == kAccept) {
      can_end_ = true;
      continue;
    }
    const Node& node = automaton_.nodes[frame.node];
    if (node.kind == NodeKind::kDead || !seen_.insert(frame).second) continue;
    if (!Look(1)) return;
    switch (node.kind) {
      case NodeKind::kBytes:
        waiting_.push_back(frame);
        break;
      case NodeKind::kSplit:
        work_.push_back({node.other, frame.stack});
        work_.push_back({node.next, frame.stack});
        break;
      case NodeKind::kCall: {
        work_.push_back({node.other, frame.stack});
        auto& [rule, callers] = calls_[automaton_.order[node.rule]];
        rule = node.rule;
        if (automaton_.nodes[node.next].kind == NodeKind::kFinal) {
          const absl::Span<const Frame> tail = stacks_[frame.stack].frames;
          if (!Look(tail.size())) return;
          callers.insert(callers.end(), tail.begin(), tail.end());
        } else {
          callers.push_back({node.next, frame.stack});
        }
        break;
      }
      case NodeKind::kFinal: {
        // A rule that ends where it began was gone around by its callers already.
        if (in_new_rule) break;
        const absl::Span<const Frame> callers = stacks_[frame.stack].frames;
        if (!Look(callers.size())) return;
        work_.insert(work_.end(), callers.begin(), callers.end());
        break;
      }
      default:
        break;
    }
  }
}

StateId StateMachine::Close(const Frames& seeds) {
  // In the middle of a character nothing is called or left.
  if (seeds.size() == 1 && automaton_.nodes[seeds[0].node].kind == NodeKind::kBytes) {
    looked_at_ = 1;
    return InternState(seeds, /*can_end=*/false);
  }
  work_.assign(seeds.begin(), seeds.end());
  waiting_.clear();
  seen_.clear();
  calls_.clear();
  can_end_ = false;
  Follow(/*in_new_rule=*/false);
  // Rules in their order: when one is entered, all its callers here are known.
  while (!calls_.empty() && !exhausted_) {
    auto [rule, callers] = std::move(calls_.begin()->second);
    calls_.erase(calls_.begin());
    if (callers.size() > kMaxFrames) {
      exhausted_ = true;
      break;
    }
    work_.push_back({automaton_.rule_start[rule], InternStack(std::move(callers))});
    Follow(/*in_new_rule=*/true);
  }
  if (waiting_.size() > kMaxFrames) exhausted_ = true;
  if (exhausted_) {
    work_.clear();
    return kNoState;
  }
  return InternState(waiting_, can_end_);
}

StateId StateMachine::Import(const StateMachine& other, StateId state) {
  if (state == kNoState) return kNoState;
  // The stacks that the state stands on, each before those that hold it: a stack's frames are older
  // than itself.
  std::vector<StackId> needed;
  HashSet<StackId> found;
  auto need = [&](absl::Span<const Frame> frames) {
    for (const Frame& frame : frames) {
      if (frame.node != kAccept && found.insert(frame.stack).second) needed.push_back(frame.stack);
    }
  };
  need(other.states_[state].frames);
  for (size_t i = 0; i < needed.size(); ++i) need(other.stacks_[needed[i]].frames);
  std::sort(needed.begin(), needed.end());
  HashMap<StackId, StackId> moved;
  auto move = [&](absl::Span<const Frame> frames) {
    Frames result(frames.begin(), frames.end());
    for (Frame& frame : result) {
      if (frame.node != kAccept) frame.stack = moved[frame.stack];
    }
    return result;
  };
  for (StackId stack : needed) moved[stack] = InternStack(move(other.stacks_[stack].frames));
  return InternState(move(other.states_[state].frames), other.states_[state].can_end);
}

}  // namespace lm
