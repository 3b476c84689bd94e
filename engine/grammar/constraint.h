// A grammar bound to a vocabulary, with the states and masks found so far. All matchers of one
// grammar share it, so that each mask is computed once, whichever row comes there first.
//
//   ASSIGN_OR_RETURN(std::shared_ptr<Constraint> constraint, Constraint::Create(grammar, trie));
//   GrammarMatcher a(constraint), b(constraint);
//
// Thread-safe: one lock, held while a mask is computed (a fraction of a millisecond).
#ifndef LM_ENGINE_GRAMMAR_CONSTRAINT_H_
#define LM_ENGINE_GRAMMAR_CONSTRAINT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "engine/grammar/grammar.h"
#include "engine/grammar/state_machine.h"
#include "engine/grammar/token_trie.h"

namespace lm {

class Constraint {
 public:
  static constexpr size_t kDefaultCacheBytes = 64 << 20;

  // Beyond `cache_bytes` of states and masks a new cache is begun; the old one goes with the last
  // matcher that still stands in it. ResourceExhausted where the grammar's beginning is ambiguous
  // beyond reason.
  static absl::StatusOr<std::shared_ptr<Constraint>> Create(
      std::shared_ptr<const Grammar> grammar, std::shared_ptr<const TokenTrie> trie,
      size_t cache_bytes = kDefaultCacheBytes);

  const TokenTrie& trie() const { return *trie_; }

  // What follows is for GrammarMatcher.

  class Cache;
  // A place in the grammar's texts.
  struct Position {
    std::shared_ptr<Cache> cache;
    StateId state = StateMachine::kNoState;
    bool can_end = false;
    bool is_complete = false;
  };

  Position Start();
  // Sets *mask to the tokens that go on from there. ResourceExhausted as above.
  absl::Status FillMask(Position* position, absl::Span<uint64_t> mask);
  // Moves over `bytes`; false, and *position stays, if the grammar does not continue with them.
  absl::StatusOr<bool> Advance(Position* position, absl::string_view bytes);
  // The bytes, at most `limit`, that every text has next. Moves *position behind them.
  absl::StatusOr<std::string> SkipForced(Position* position, size_t limit);
  // Is there a token that begins with `tail` and goes on with bytes allowed at `position`?
  absl::StatusOr<bool> SomeTokenGoesOn(Position position, absl::string_view tail);

 private:
  Constraint(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const TokenTrie> trie,
             size_t cache_bytes);
  // Moves *position to the cache that is in use, and begins an operation there.
  Cache& Enter(Position* position) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::shared_ptr<const Grammar> grammar_;
  const std::shared_ptr<const TokenTrie> trie_;
  const size_t cache_bytes_;

  absl::Mutex mutex_;
  std::shared_ptr<Cache> cache_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lm

#endif  // LM_ENGINE_GRAMMAR_CONSTRAINT_H_
