// Runs an automaton over bytes: a pushdown automaton made deterministic as it goes.
//
//   StateMachine machine(grammar->automaton());
//   StateId state = machine.start();
//   for (char c : text) state = machine.Next(state, static_cast<uint8_t>(c));
//   bool matched = state != StateMachine::kNoState && machine.CanEnd(state);
//
// HOW IT WORKS
// A state is a set of frames (node, stack): the nodes that wait for a byte, each with what comes
// after its rule. A stack is again a set of frames: the places that the rule was called from. Both
// are interned: equal sets have equal ids, so states cost an int to copy and to compare, and stacks
// share their tails. All callers of one rule at one position share one stack, which keeps an
// ambiguous grammar polynomial (a graph-structured stack; Tomita 1985). A call at the very end of a
// rule hands on its caller's stack, so right recursion does not grow. Without left recursion every
// stack holds older stacks only.
//
// Transitions are computed once for a state and a class of bytes. The machine only grows; its owner
// looks at bytes() and moves what it needs to a new one with Import.
//
// TIME. A machine works in turns: it has the work that Resume gave it, and pauses where that is
// spent. What is known stays known, so a computation that is begun again is quickly where it was.
// How large one state may be is a limit on the grammar, the same whatever was computed before.
//
// Not thread-safe.
#ifndef LM_ENGINE_GRAMMAR_STATE_MACHINE_H_
#define LM_ENGINE_GRAMMAR_STATE_MACHINE_H_

#include <cstdint>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "engine/base/hash_map.h"
#include "engine/grammar/automaton.h"

namespace lm {

using StateId = int32_t;
using StackId = int32_t;

class StateMachine {
 public:
  // The state of texts that the grammar does not continue.
  static constexpr StateId kNoState = -1;
  // Frames of one state or stack.
  static constexpr size_t kMaxFrames = 1 << 15;
  // What computing one state may take, of Resume's work, and so by how much a turn can be too long.
  static constexpr int64_t kMaxStateWork = 20'000'000;

  // REQUIRES: *automaton outlives this.
  explicit StateMachine(const Automaton* automaton);
  StateMachine(const StateMachine&) = delete;
  StateMachine& operator=(const StateMachine&) = delete;

  // The state of the empty text; kNoState if computing it went beyond the limits.
  StateId start() const { return start_; }

  // The state after one more byte. While stopped(), kNoState says nothing about the grammar.
  StateId Next(StateId state, uint8_t byte) {
    const int byte_class = automaton_.class_of_byte[byte];
    const StateId known =
        transitions_[size_t{static_cast<uint32_t>(state)} * num_classes_ + byte_class];
    return known >= kNoState ? known : ComputeNext(state, byte_class);
  }

  // The text so far is a whole text of the grammar.
  bool CanEnd(StateId state) const { return states_[state].can_end; }
  // ... and none goes on from here.
  bool IsComplete(StateId state) const {
    return states_[state].can_end && states_[state].frames.empty();
  }
  // The byte that every text of the grammar has next; -1 if there are several, or none.
  int ForcedByte(StateId state) const { return states_[state].forced_byte; }

  // The fewest bytes to the end of a text; at most Automaton::kFar.
  int32_t Distance(StateId state) const { return states_[state].distance; }
  // A byte that brings it nearer: the same one wherever the state is the same place of the grammar.
  // REQUIRES: 0 < Distance(state) < Automaton::kFar.
  uint8_t NearerByte(StateId state) const;

  // The state of this machine that stands for `state` of `other`, a machine of the same automaton.
  StateId Import(const StateMachine& other, StateId state);

  // About what a state takes in memory, and in proportion to it in time: a number of the grammar,
  // the same in every machine.
  size_t StateBytes(StateId state) const { return states_[state].bytes; }
  // Equal for the states of two machines that stand for the same place of the grammar.
  uint64_t Digest(StateId state) const { return states_[state].digest; }

  // A state, or what there is to follow on the way to it, is larger than kMaxFrames and
  // kMaxStateWork allow: the grammar is ambiguous beyond reason. Until Resume.
  bool exhausted() const { return exhausted_; }
  // The work was spent. Until Resume.
  bool paused() const { return paused_; }
  bool stopped() const { return exhausted_ || paused_; }
  // Goes on with so much work, about a nanosecond each: a state is begun where some is left. Before
  // the first call there is no limit.
  void Resume(int64_t work);
  int64_t work_left() const { return work_left_; }
  // Counts work that the machine's owner has done; false, and paused(), where none is left.
  bool Spend(int64_t work) {
    work_left_ -= work;
    paused_ = paused_ || work_left_ <= 0;
    return !paused_;
  }

  int num_states() const { return static_cast<int>(states_.size()); }
  // Memory in use, about.
  size_t bytes() const { return bytes_; }

 private:
  struct Frame {
    NodeId node;  // kAccept: the end of the text
    StackId stack;
    friend bool operator==(const Frame&, const Frame&) = default;
    friend auto operator<=>(const Frame&, const Frame&) = default;
    template <typename H>
    friend H AbslHashValue(H h, const Frame& f) {
      return H::combine(std::move(h), f.node, f.stack);
    }
  };
  using Frames = std::vector<Frame>;
  struct State {
    absl::Span<const Frame> frames;  // sorted; of kBytes nodes only
    bool can_end;
    int16_t forced_byte;
    uint32_t bytes;
    int32_t distance;
    uint64_t digest;
  };
  struct Stack {
    absl::Span<const Frame> frames;
    int32_t distance;
    uint64_t digest;
  };
  // Frames of a state, with whether it can end.
  using StateKey = std::pair<Frames, bool>;

  static constexpr NodeId kAccept = -1;
  static constexpr StateId kUnknown = -2;
  static constexpr StateId kTooLarge = -3;

  StateId ComputeNext(StateId state, int byte_class);
  // The state reached when all of `seeds` are, before the next byte.
  StateId Close(const Frames& seeds);
  // Follows splits, calls and returns from what is in work_.
  void Follow(bool in_new_rule);
  StackId InternStack(Frames frames);
  StateId InternState(Frames frames, bool can_end);
  // Counts towards kMaxStateWork.
  bool Look(size_t frames);
  uint64_t DigestOf(absl::Span<const Frame> frames) const;
  int32_t DistanceOf(const Frame& frame) const;
  int32_t DistanceOf(absl::Span<const Frame> frames) const;

  const Automaton& automaton_;
  const int num_classes_;
  StateId start_ = kNoState;

  // Spans point into the keys of the maps, whose storage does not move.
  HashMap<Frames, StackId> stack_ids_;
  std::vector<Stack> stacks_;
  HashMap<StateKey, StateId> state_ids_;
  std::vector<State> states_;
  std::vector<StateId> transitions_;  // (state, class)
  // What Close made of seeds: most classes of bytes lead a state to where another one does.
  HashMap<Frames, StateId> closed_;
  size_t bytes_ = 0;

  int64_t work_left_ = std::numeric_limits<int64_t>::max();
  bool paused_ = false;
  bool exhausted_ = false;
  size_t looked_at_ = 0;  // frames, for the state that is being made

  // Used by ComputeNext and Close, kept for their memory.
  Frames seeds_;
  Frames work_;
  std::vector<StackId> stacks_of_state_;
  Frames waiting_;  // the frames of the state that is being made
  bool can_end_ = false;
  HashSet<Frame> seen_;
  std::map<int32_t, std::pair<RuleId, Frames>> calls_;  // by order: rule, who called it
};

}  // namespace lm

#endif  // LM_ENGINE_GRAMMAR_STATE_MACHINE_H_
