// The states of one automaton that were visited and the masks of those that were asked for. See
// Constraint, which owns one at a time.
#ifndef LM_ENGINE_GRAMMAR_MASK_CACHE_H_
#define LM_ENGINE_GRAMMAR_MASK_CACHE_H_

#include <bitset>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/grammar/constraint.h"
#include "engine/grammar/state_machine.h"
#include "engine/grammar/token_trie.h"

namespace lm {

// An operation is a mask, or steps from one state to others. It may visit `operation_bytes` of
// states: counted anew for each operation, so that its end does not depend on what was computed
// before. A mask is computed in turns, each of the work that the machine was given (see
// StateMachine::Resume); one that was begun is finished before anything else is done here, whoever
// asks.
//
// Not thread-safe.
class Constraint::Cache {
 public:
  // REQUIRES: both outlive this.
  Cache(const Automaton* automaton, const TokenTrie* trie, size_t operation_bytes)
      : machine_(automaton), trie_(*trie), operation_bytes_(operation_bytes) {}

  StateMachine& machine() { return machine_; }
  size_t bytes() const { return machine_.bytes() + mask_bytes_; }

  // Sets *mask to that of `state`, valid until the next call, and *visited to the bytes of the
  // states that are visited for it. Unavailable where the machine paused; ResourceExhausted.
  absl::Status Mask(StateId state, absl::Span<const uint64_t>* mask, size_t* visited);

  // The fewest tokens of a way from `state` to the end of a text: of the one with the fewest bytes
  // that StateMachine::NearerByte goes. kTooFar where that has more than kMostBytesToEnd, or
  // cannot be written in this vocabulary. Each token of that way leaves one less to do.
  static constexpr size_t kMostBytesToEnd = 8192;
  static constexpr int32_t kTooFar = std::numeric_limits<int32_t>::max();
  // Sets *tokens; Unavailable where the machine paused.
  absl::Status TokensToEnd(StateId state, int32_t* tokens);
  // As Mask, but sets in *mask those tokens only behind which at most `tokens` are needed, and
  // *left_out where others were allowed.
  absl::Status MaskToEnd(StateId state, int32_t tokens, absl::Span<uint64_t> mask, bool* left_out,
                         size_t* visited);

  // Begins an operation of steps. Unavailable where the machine paused before.
  absl::Status BeginSteps();
  // As StateMachine::Next; kNoState also where the status is not OK.
  StateId Step(StateId state, uint8_t byte);
  // Unavailable where the machine paused, ResourceExhausted where the operation has become too
  // large.
  absl::Status status() const;

 private:
  enum class Outcome : uint8_t { kNotAsked, kKnown, kStateTooLarge, kTooManyStates };
  struct Entry {
    Outcome outcome = Outcome::kNotAsked;
    std::unique_ptr<uint64_t[]> mask;
    size_t visited = 0;
  };
  // The tokens of a mask by how many are needed behind them, ascending.
  using MasksToEnd = std::map<int32_t, std::unique_ptr<uint64_t[]>>;
  struct EntryToEnd {
    Outcome outcome = Outcome::kNotAsked;
    MasksToEnd masks;
    size_t visited = 0;
  };
  // A mask that is being computed: `tree` was walked up to `node`. Plain tokens come first, others
  // then; all of them at once where their ways to the end are wanted.
  struct Walk {
    StateId state = StateMachine::kNoState;
    const TokenTrie::Tree* tree = nullptr;  // null: not chosen yet
    int32_t node = 0;
    std::vector<StateId> path = {};  // the state after each byte of the current branch
    std::unique_ptr<uint64_t[]> mask = nullptr;
    bool freed = false;  // what begins with a character that frees the text is in the mask
    bool to_end = false;
    MasksToEnd masks_to_end = {};
  };

  absl::Status StatusOf(Outcome outcome) const;
  void BeginOperation();
  // Goes on with *walk_ to its end. Where memory runs out there is no walk any more.
  absl::Status FinishWalk();
  absl::Status GoOnWithWalk();
  // Adds the tokens of walk->tree that go on. Returns where the status is not OK.
  void GoOn(Walk* walk);
  // Where the node, which leads to `state`, has many plain tokens below it and all of them go on,
  // adds them. False also where the machine paused before it was known.
  bool AddAllBelow(const TokenTrie::Node& node, StateId state, Walk* walk);
  // Adds the plain tokens of a node and below it; about the work that it took, in nodes.
  int32_t AddSubtree(const TokenTrie::Node& node, Walk* walk);
  // Adds those of a node that leads to `state`. False where the machine paused before.
  bool AddTokens(StateId state, absl::Span<const int32_t> tokens, Walk* walk);
  Outcome OutcomeOfWalk();
  // The fewest tokens that spell way[from], ..., where to_end[i] are needed from way[i] on.
  int32_t FewestTokens(absl::string_view way, absl::Span<const int32_t> to_end) const;
  // What the kinds of plain characters (TokenTrie::KindOf) do in a state.
  struct Kinds {
    StateId target = StateMachine::kNoState;  // of most that go on; kNoState: none goes on
    std::bitset<TokenTrie::kNumKinds> to_target, elsewhere;
    bool frees = false;  // from `target` all plain tokens go on
  };
  // Where a run of the same kinds of characters goes on from `state`, as in [a-z]+ and [a-z]{1,40},
  // adds those of `among` that do behind their first `from` bytes (0 or 1), which lead to `state`:
  // what has no character but those is known without a look at it, and what has one that leads
  // elsewhere is looked at alone. False where there is no such run, or it saves nothing; also where
  // the machine stopped.
  bool AddRun(StateId state, int from, absl::Span<const uint64_t> among, Walk* walk);
  // Whether all plain characters that go on from here go to one state, and so on, as far as a plain
  // token is long, always the same kinds; or back to `state`.
  bool IsRun(StateId state);
  // Where most plain characters free the text, as at the beginning of a name that is to be none of
  // several, adds the tokens that begin with one of those. Walk::freed then says so.
  void AddFreed(Walk* walk);
  // Whether a node's character frees the text in the state before it, as far as that is known.
  bool Frees(StateId before, const TokenTrie::Node& node) const {
    const Kinds* const kinds =
        static_cast<size_t>(before) < kinds_.size() ? kinds_[before].get() : nullptr;
    return kinds != nullptr && kinds->frees && kinds->to_target[TokenTrie::KindOf(node.byte)];
  }
  // Null where the machine stopped.
  const Kinds* KindsOf(StateId state);
  Kinds ComputeKinds(StateId state);
  // All plain tokens go on from `state`. (May say no where they do.)
  bool AllowsAllPlain(StateId state);
  // The one state that every plain character leads to; kNoState if there is none such.
  StateId AfterPlain(StateId state);
  StateId ComputeAfterPlain(StateId state);
  // Every character beyond ASCII leads to `target`; to nowhere where that is kNoState.
  bool OtherCharacters(StateId state, StateId target);
  // Bytes [low, high] and then, if `more` > 0, that many bytes 80..BF, all lead to `target`.
  bool AllLeadTo(StateId target, StateId from, int low, int high, int more);

  StateMachine machine_;
  const TokenTrie& trie_;
  const size_t operation_bytes_;
  std::vector<Entry> masks_;                         // by state
  std::vector<StateId> after_plain_;                 // by state; kUnknown
  std::vector<std::unique_ptr<const Kinds>> kinds_;  // by state; null where not asked for
  std::unordered_map<StateId, EntryToEnd> masks_to_end_;
  std::vector<int32_t> tokens_to_end_;  // by state; kUnknown
  size_t mask_bytes_ = 0;
  std::optional<Walk> walk_;

  uint32_t operation_ = 0;
  size_t visited_ = 0;            // by the operation, in bytes
  std::vector<uint32_t> visits_;  // by state: the last operation that counted it
  bool too_many_states_ = false;
};

}  // namespace lm

#endif  // LM_ENGINE_GRAMMAR_MASK_CACHE_H_
