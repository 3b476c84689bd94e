// A grammar bound to a vocabulary, with the states and masks found so far. All matchers of one
// grammar share it, so that each mask is computed once, whichever row comes there first.
//
//   ASSIGN_OR_RETURN(std::shared_ptr<Constraint> constraint, Constraint::Create(grammar, trie));
//   GrammarMatcher a(constraint), b(constraint);
//
// What is hard to compute is computed in turns. An operation takes *work (about a nanosecond each)
// and subtracts what it did; where that was not enough it is Unavailable, and the same call goes on
// where this one stopped. Null is no limit. How large an operation may be altogether is a limit on
// the grammar: ResourceExhausted, whoever computed what before.
//
// Thread-safe: one lock, held for a turn.
#ifndef LM_ENGINE_GRAMMAR_CONSTRAINT_H_
#define LM_ENGINE_GRAMMAR_CONSTRAINT_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
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
  // States that one mask, or one step over a text, may visit: far beyond what grammars need that
  // somebody means. The masks of one text together may visit kOperationsOfText times as much, some
  // ten seconds of work.
  static constexpr size_t kDefaultOperationBytes = 256 << 20;
  static constexpr size_t kOperationsOfText = 8;

  // Beyond `cache_bytes` of states and masks a new cache is begun; the old one goes with the last
  // matcher that still stands in it. ResourceExhausted where the grammar's beginning is ambiguous
  // beyond reason.
  static absl::StatusOr<std::shared_ptr<Constraint>> Create(
      std::shared_ptr<const Grammar> grammar, std::shared_ptr<const TokenTrie> trie,
      size_t cache_bytes = kDefaultCacheBytes, size_t operation_bytes = kDefaultOperationBytes);

  const TokenTrie& trie() const { return *trie_; }
  size_t text_bytes() const { return kOperationsOfText * operation_bytes_; }

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
  // Moves *position to the cache that is in use. Between the turns of one operation it stays where
  // it is, or what was computed would be lost.
  void Settle(Position* position);
  // Sets *mask to the tokens that go on from there. The digest tells places of the grammar apart;
  // `visited` is how many bytes of states were looked at: equal for equal places.
  struct MaskCost {
    uint64_t digest = 0;
    size_t visited = 0;
  };
  // With `room` only tokens with which, and so many in all at most, the text can be ended;
  // *left_out says whether others were allowed.
  absl::StatusOr<MaskCost> FillMask(const Position& position, std::optional<int32_t> room,
                                    absl::Span<uint64_t> mask, bool* left_out, int64_t* work);
  // In how many tokens it can be ended: those of the way with the fewest bytes. kTooFar where that
  // is too long to say.
  static constexpr int32_t kTooFar = std::numeric_limits<int32_t>::max();
  absl::StatusOr<int32_t> TokensToEnd(const Position& position, int64_t* work);
  // Whether that is `room` or less wherever a text is.
  bool IsNearEverywhere(int32_t room) const;
  // Moves over `bytes`; false, and *position stays, if the grammar does not continue with them.
  absl::StatusOr<bool> Advance(Position* position, absl::string_view bytes, int64_t* work);
  // The bytes, at most `limit`, that every text has next. Moves *position behind them.
  absl::StatusOr<std::string> SkipForced(Position* position, size_t limit, int64_t* work);
  // Is there a token that begins with `tail` and goes on with bytes allowed at `position`?
  absl::StatusOr<bool> SomeTokenGoesOn(const Position& position, absl::string_view tail,
                                       int64_t* work);

 private:
  Constraint(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const TokenTrie> trie,
             size_t cache_bytes, size_t operation_bytes);
  std::shared_ptr<Cache> NewCache() const;
  const std::shared_ptr<const Grammar> grammar_;
  const std::shared_ptr<const TokenTrie> trie_;
  const size_t cache_bytes_;
  const size_t operation_bytes_;

  absl::Mutex mutex_;
  std::shared_ptr<Cache> cache_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lm

#endif  // LM_ENGINE_GRAMMAR_CONSTRAINT_H_
