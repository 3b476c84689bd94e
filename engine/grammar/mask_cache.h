// The states of one automaton that were visited and the masks of those that were asked for. See
// Constraint, which owns one at a time.
#ifndef LM_ENGINE_GRAMMAR_MASK_CACHE_H_
#define LM_ENGINE_GRAMMAR_MASK_CACHE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "engine/grammar/constraint.h"
#include "engine/grammar/state_machine.h"
#include "engine/grammar/token_trie.h"

namespace lm {

// Not thread-safe.
class Constraint::Cache {
 public:
  // REQUIRES: both outlive this.
  Cache(const Automaton* automaton, const TokenTrie* trie) : machine_(automaton), trie_(*trie) {}

  StateMachine& machine() { return machine_; }
  size_t bytes() const { return machine_.bytes() + mask_bytes_; }

  // The mask of `state`; empty if the machine is exhausted. Valid until the next call.
  absl::Span<const uint64_t> Mask(StateId state);

 private:
  void ComputeMask(StateId state, absl::Span<uint64_t> mask);
  // Adds the tokens of `tree` that go on from `state`.
  void Walk(const TokenTrie::Tree& tree, StateId state, absl::Span<uint64_t> mask);
  // All plain tokens go on from `state`. (May say no where they do.)
  bool AllowsAllPlain(StateId state);
  // The one state that every plain character leads to; kNoState if there is none such.
  StateId AfterPlain(StateId state);
  StateId ComputeAfterPlain(StateId state);
  // Bytes [low, high] and then, if `more` > 0, that many bytes 80..BF, all lead to `target`.
  bool AllLeadTo(StateId target, StateId from, int low, int high, int more);

  StateMachine machine_;
  const TokenTrie& trie_;
  std::vector<std::unique_ptr<uint64_t[]>> masks_;  // by state; null where not asked for
  std::vector<StateId> after_plain_;                // by state; kUnknown
  size_t mask_bytes_ = 0;
  std::vector<StateId> path_;  // for Walk
};

}  // namespace lm

#endif  // LM_ENGINE_GRAMMAR_MASK_CACHE_H_
