#include "engine/grammar/state_machine.h"

#include <algorithm>

namespace lm {
namespace {

// Frames that one operation may look at (some tenths of a second).
constexpr size_t kMaxWork = 20'000'000;
// Frames of one state or stack.
constexpr size_t kMaxFrames = 1 << 15;
// What a map node and its bookkeeping cost besides the frames.
constexpr size_t kEntryBytes = 96;

}  // namespace

StateMachine::StateMachine(const Automaton* automaton)
    : automaton_(*automaton), num_classes_(automaton->num_classes()) {
  ResetWork();
  const StackId bottom = InternStack({{kAccept, 0}});
  Frames seeds;
  const NodeId root = automaton_.rule_start[automaton_.root];
  seeds.push_back({root, bottom});
  start_ = Close(&seeds);
}

void StateMachine::ResetWork() {
  work_left_ = kMaxWork;
  exhausted_ = false;
}

bool StateMachine::Spend(size_t work) {
  if (work_left_ < work) {
    exhausted_ = true;
    return false;
  }
  work_left_ -= work;
  return true;
}

StackId StateMachine::InternStack(Frames frames) {
  std::sort(frames.begin(), frames.end());
  frames.erase(std::unique(frames.begin(), frames.end()), frames.end());
  auto [at, is_new] = stack_ids_.try_emplace(std::move(frames), stacks_.size());
  if (is_new) {
    stacks_.push_back(at->first);
    bytes_ += kEntryBytes + at->first.size() * sizeof(Frame);
  }
  return at->second;
}

StateId StateMachine::InternState(Frames frames, bool can_end) {
  std::sort(frames.begin(), frames.end());
  auto [at, is_new] = state_ids_.try_emplace({std::move(frames), can_end}, states_.size());
  if (is_new) {
    const Frames& kept = at->first.first;
    int forced = can_end || kept.empty() ? -1 : automaton_.nodes[kept[0].node].low;
    for (const Frame& frame : kept) {
      const Node& node = automaton_.nodes[frame.node];
      if (node.low != forced || node.high != forced) forced = -1;
    }
    states_.push_back({kept, can_end, static_cast<int16_t>(forced)});
    transitions_.resize(transitions_.size() + num_classes_, kUnknown);
    bytes_ += kEntryBytes + kept.size() * sizeof(Frame) + num_classes_ * sizeof(StateId);
  }
  return at->second;
}

StateId StateMachine::ComputeNext(StateId state, int byte_class) {
  const absl::Span<const Frame> frames = states_[state].frames;
  if (!Spend(frames.size() + 1)) return kNoState;
  const uint8_t byte = automaton_.representative[byte_class];
  Frames seeds;
  for (const Frame& frame : frames) {
    const Node& node = automaton_.nodes[frame.node];
    if (node.low <= byte && byte <= node.high) seeds.push_back({node.next, frame.stack});
  }
  const StateId next = seeds.empty() ? kNoState : Close(&seeds);
  if (!exhausted_) transitions_[state * num_classes_ + byte_class] = next;
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
    if (!Spend(1)) return;
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
          const absl::Span<const Frame> tail = stacks_[frame.stack];
          if (!Spend(tail.size())) return;
          callers.insert(callers.end(), tail.begin(), tail.end());
        } else {
          callers.push_back({node.next, frame.stack});
        }
        break;
      }
      case NodeKind::kFinal: {
        // A rule that ends where it began was gone around by its callers already.
        if (in_new_rule) break;
        const absl::Span<const Frame> callers = stacks_[frame.stack];
        work_.insert(work_.end(), callers.begin(), callers.end());
        break;
      }
      default:
        break;
    }
  }
}

StateId StateMachine::Close(Frames* seeds) {
  work_.swap(*seeds);
  seeds->clear();
  waiting_.clear();
  seen_.clear();
  calls_.clear();
  can_end_ = false;
  Follow(/*in_new_rule=*/false);
  // Rules in their order: when one is entered, all its callers here are known.
  while (!calls_.empty() && !exhausted_) {
    auto [rule, callers] = std::move(calls_.begin()->second);
    calls_.erase(calls_.begin());
    if (callers.size() > kMaxFrames) exhausted_ = true;
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
  absl::flat_hash_set<StackId> found;
  auto need = [&](absl::Span<const Frame> frames) {
    for (const Frame& frame : frames) {
      if (frame.node != kAccept && found.insert(frame.stack).second) needed.push_back(frame.stack);
    }
  };
  need(other.states_[state].frames);
  for (size_t i = 0; i < needed.size(); ++i) need(other.stacks_[needed[i]]);
  std::sort(needed.begin(), needed.end());
  absl::flat_hash_map<StackId, StackId> moved;
  auto move = [&](absl::Span<const Frame> frames) {
    Frames result(frames.begin(), frames.end());
    for (Frame& frame : result) {
      if (frame.node != kAccept) frame.stack = moved[frame.stack];
    }
    return result;
  };
  for (StackId stack : needed) moved[stack] = InternStack(move(other.stacks_[stack]));
  return InternState(move(other.states_[state].frames), other.states_[state].can_end);
}

}  // namespace lm
