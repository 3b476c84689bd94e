// ConstraintCache: a model's compiled constraints, shared by all rows, statements and connections
// that ask for the same one.
//
//   ConstraintCache cache(&tokenizer);
//   ASSIGN_OR_RETURN(std::shared_ptr<const CompiledConstraint> compiled,
//                    cache.Get({AnswerConstraint::Kind::kRegex, "[0-9]+"}));
//   GrammarMatcher matcher = compiled->begin;     // a row's own
#ifndef LM_ENGINE_RUNTIME_CONSTRAINT_CACHE_H_
#define LM_ENGINE_RUNTIME_CONSTRAINT_CACHE_H_

#include <cstdint>
#include <list>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "engine/base/hash_map.h"
#include "engine/grammar/grammar.h"
#include "engine/grammar/grammar_matcher.h"
#include "engine/runtime/generation_options.h"
#include "engine/text/tokenizer.h"

namespace lm {

// What the constraint allows, without a model. ConstraintCache::Get's errors.
absl::StatusOr<std::shared_ptr<const Grammar>> CompileNotation(const AnswerConstraint& constraint);

// Immutable. Each answer goes on from a copy of `begin`, which stands behind `start`.
struct CompiledConstraint {
  GrammarMatcher begin;
  // The tokens that every answer begins with: they are computed with the prompt.
  std::vector<int32_t> start;
};

// Thread-safe. Concurrent first calls for one constraint may each compile it; one result is kept.
class ConstraintCache {
 public:
  // Constraints kept, and bytes of states and masks of each: what they can take together is
  // bounded.
  static constexpr size_t kMaxConstraints = 32;
  static constexpr size_t kMaxBytesEach = 16 << 20;

  // REQUIRES: *tokenizer outlives this and everything it returns.
  explicit ConstraintCache(const Tokenizer* tokenizer) : tokenizer_(*tokenizer) {}

  // InvalidArgument, naming the option and the place, for a constraint that does not compile;
  // ResourceExhausted for one that is ambiguous beyond reason.
  // REQUIRES: constraint.kind != kNone.
  absl::StatusOr<std::shared_ptr<const CompiledConstraint>> Get(const AnswerConstraint& constraint);

 private:
  using Entry = std::pair<AnswerConstraint, std::shared_ptr<const CompiledConstraint>>;

  absl::StatusOr<std::shared_ptr<const CompiledConstraint>> Compile(
      const AnswerConstraint& constraint);
  absl::StatusOr<std::shared_ptr<const TokenTrie>> Trie();

  const Tokenizer& tokenizer_;
  absl::Mutex mutex_;
  std::shared_ptr<const TokenTrie> trie_ ABSL_GUARDED_BY(mutex_);  // made at the first use
  std::list<Entry> entries_ ABSL_GUARDED_BY(mutex_);               // the last used first
  HashMap<AnswerConstraint, std::list<Entry>::iterator> index_ ABSL_GUARDED_BY(mutex_);
};

// The tokens of `text`, as they stand inside an answer; empty where it cannot be encoded.
std::vector<int32_t> AnswerTokens(const Tokenizer& tokenizer, absl::string_view text);

}  // namespace lm

#endif  // LM_ENGINE_RUNTIME_CONSTRAINT_CACHE_H_
