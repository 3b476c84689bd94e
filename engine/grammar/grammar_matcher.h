// Follows one sequence through a grammar: which tokens may come next, and where the text may end.
//
//   GrammarMatcher matcher(constraint);
//   std::vector<uint64_t> mask(constraint->trie().mask_words());
//   while (!matcher.ended()) {
//     RETURN_IF_ERROR(matcher.FillMask(absl::MakeSpan(mask)));
//     int32_t token = Pick(logits, mask);                // mask[token / 64] >> (token % 64) & 1
//     RETURN_IF_ERROR(matcher.Accept(token));
//     if (matcher.IsComplete()) break;                   // nothing can follow
//   }
//
// A grammar can make one of these calls long. With `work` (see Constraint; null: no limit) it may
// be Unavailable: the same call, and no other, is made again later and goes on where this one
// stopped.
//
// As long as the vocabulary has a token for each single byte, a mask is never empty and every text
// can be finished. Copies are cheap and independent. Not thread-safe; the constraint is.
#ifndef LM_ENGINE_GRAMMAR_GRAMMAR_MATCHER_H_
#define LM_ENGINE_GRAMMAR_GRAMMAR_MATCHER_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/grammar/constraint.h"

namespace lm {

class GrammarMatcher {
 public:
  // Accepted tokens that Rollback can take back.
  static constexpr size_t kMaxRollback = 64;
  static constexpr size_t kMaxForcedBytes = 1024;

  explicit GrammarMatcher(std::shared_ptr<Constraint> constraint);

  // The length of a mask.
  size_t mask_words() const { return constraint_->trie().mask_words(); }

  // Sets bit id % 64 of mask[id / 64] for every token that may come next, clears all others. Tokens
  // that end generation are set where CanEnd(); after one was accepted nothing is set.
  // InvalidArgument for a mask of another length than mask_words(); FailedPrecondition if no token
  // of this vocabulary goes on; ResourceExhausted for a grammar ambiguous beyond reason, here or
  // in the masks until here together.
  absl::Status FillMask(absl::Span<uint64_t> mask, int64_t* work = nullptr);
  // The same, of tokens with which the text can be ended in `room` tokens together; *left_out says
  // whether there are others. There are some as long as TokensToEnd() is at most `room`, and each
  // leaves TokensToEnd() at most `room` - 1.
  absl::Status FillMaskToEnd(int32_t room, absl::Span<uint64_t> mask, bool* left_out,
                             int64_t* work = nullptr);
  // In how many tokens the text can be ended: those of a shortest way, in bytes. kTooFar if that
  // has more than some thousand bytes.
  static constexpr int32_t kTooFar = Constraint::kTooFar;
  absl::StatusOr<int32_t> TokensToEnd(int64_t* work = nullptr);
  // In bytes.
  int32_t longest_token() const { return constraint_->trie().all().max_depth; }
  // TokensToEnd() is at most `room` here and wherever one may come to.
  bool IsNearEverywhere(int32_t room) const { return constraint_->IsNearEverywhere(room); }

  // Appends a token. InvalidArgument, and nothing changes, if it is not allowed here.
  absl::Status Accept(int32_t token, int64_t* work = nullptr);
  // Appends text that is not cut into tokens, all or nothing, like Accept. Counts as one token for
  // Rollback.
  absl::Status AcceptBytes(absl::string_view bytes, int64_t* work = nullptr);

  // The text so far is a whole text of the grammar.
  bool CanEnd() const { return now_.position.can_end; }
  // ... and the grammar has no longer text that begins with it.
  bool IsComplete() const { return now_.position.is_complete; }
  // An end-of-generation token was accepted.
  bool ended() const { return now_.ended; }

  // The bytes that every text of the grammar has next: what a model need not be asked for. At most
  // kMaxForcedBytes; can end within a character. Changes nothing.
  absl::StatusOr<std::string> ForcedBytes(int64_t* work = nullptr);
  // The tokens of those bytes, as `tokenize` cuts them, that can be appended without asking: a last
  // token is left to the model where the vocabulary has a longer one that the grammar allows too
  // (forced `{"na` may become `{"`, `name`). Changes nothing: pass them to Accept.
  //
  // `tail` is how the text so far ends, where that may still be cut into other tokens (the model
  // said
  // `"`, `na` and `me` are forced: `"name` is one token). The result then stands for the tail too;
  // it is empty where no cut of both together is certain.
  absl::StatusOr<std::vector<int32_t>> ForcedTokens(
      absl::FunctionRef<std::vector<int32_t>(absl::string_view)> tokenize,
      absl::string_view tail = "", int64_t* work = nullptr);

  // Takes back the last n accepted tokens. InvalidArgument if there are fewer (or more than
  // kMaxRollback ago).
  absl::Status Rollback(size_t n);

 private:
  struct Place {
    Constraint::Position position;
    bool ended = false;
  };
  absl::Status FillMask(std::optional<int32_t> room, absl::Span<uint64_t> mask, bool* left_out,
                        int64_t* work);
  void Push();
  // Before an operation, and behind it.
  void Begin();
  void End(const absl::Status& status) { under_way_ = absl::IsUnavailable(status); }
  absl::StatusOr<std::vector<int32_t>> FindForcedTokens(
      absl::FunctionRef<std::vector<int32_t>(absl::string_view)> tokenize, absl::string_view tail,
      int64_t* work);
  // Counts a mask towards what one text may take altogether.
  absl::Status Charge(const Constraint::MaskCost& cost);

  std::shared_ptr<Constraint> constraint_;
  Place now_;
  bool under_way_ = false;  // an operation was Unavailable
  // The places whose masks were costly, and the sum of that.
  std::vector<uint64_t> costly_;
  size_t charged_ = 0;
  std::deque<Place> before_;  // before each accepted token, oldest first
};

}  // namespace lm

#endif  // LM_ENGINE_GRAMMAR_GRAMMAR_MATCHER_H_
