// Sequence: a request while the engine works on it. It knows which of its tokens have been
// computed, where their keys and values lie, and what the answer is so far.
//
//   tokens    [ prompt ............... | answer ...... ]
//   computed  [ 0, computed() )  have keys and values in the cache
//
// Where the answer is constrained, the grammar's mask (GrammarMatcher) goes to the sampler, and
// tokens that the grammar forces are appended without asking the model: those that every answer
// begins with when the sequence is made, others together with the sampled token before them. For
// some grammars it takes long to find the mask and the forced tokens: until then the sequence is
// not ready(), and sits out steps while it gets turns (Follow). How many turns it takes changes
// nothing about the answer.
//
// Behind tokens() the sequence may have guessed tokens, which the same step computes: then more
// than one token can be taken from the step. A guess has what each of its tokens, and the one
// behind them, would be sampled by in a step of its own: the tokens before it, and the grammar's
// mask there. So the answer is the same as without guesses.
//
// Reasoning before the answer (reasoning.h) is free of the grammar and of max_tokens: both begin
// behind it.
//
//   tokens    [ prompt ... | reasoning ... | answer ...... ]
//
// With OnLength::kComplete the mask leaves only tokens behind which what is left of max_tokens (or
// the context) is enough to end the answer: the model writes what it likes as long as there is
// room, and is led to an end where there is not. Such an answer has finish "length", or "context".
#ifndef LM_ENGINE_RUNTIME_SEQUENCE_H_
#define LM_ENGINE_RUNTIME_SEQUENCE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "engine/base/monotonic_time.h"
#include "engine/cache/prefix_store.h"
#include "engine/grammar/grammar_matcher.h"
#include "engine/runtime/answer_text.h"
#include "engine/runtime/block_manager.h"
#include "engine/runtime/drafter.h"
#include "engine/runtime/reasoning.h"
#include "engine/runtime/request.h"
#include "engine/text/tokenizer.h"

namespace lm {

// Not thread-safe: the engine's thread owns it.
class Sequence {
 public:
  // Prompt and answer have at most `token_limit` tokens together; `recurrent`: the model has
  // states; `adapters`: those that the request is computed with, as PrefixOwner has them.
  // REQUIRES: *tokenizer outlives this.
  Sequence(std::shared_ptr<Request> request, const Tokenizer* tokenizer, int32_t token_limit,
           bool recurrent = false, std::string adapters = "");
  // Finishes the request, with an error, unless a result was delivered: no thread waits for ever.
  ~Sequence();

  const Request& request() const { return *request_; }
  absl::string_view salt() const { return request_->spec().salt; }
  PrefixOwner prefix_owner() const { return {salt(), adapters_}; }
  // Whether both can use one prefix.
  bool SharesWith(const Sequence& other) const {
    return salt() == other.salt() && adapters_ == other.adapters_;
  }
  // The request's priority, as it was when the sequence was made or last updated.
  Priority priority() const { return priority_; }
  void UpdatePriority() { priority_ = request_->priority(); }
  bool interactive() const { return priority() == Priority::kInteractive; }
  bool scoring() const { return request_->spec().score_prompt; }
  bool embedding() const { return request_->spec().embed.has_value(); }
  // Whether results are wanted of other tokens of the prompt than the last one: then a cached
  // prefix, of which there are keys and values only, is of no use.
  bool wants_every_token() const {
    return scoring() || (embedding() && request_->spec().embed != Pooling::kLast);
  }
  // The tokens [begin, end), among the `count` tokens from the position on, whose hidden states are
  // pooled.
  struct Range {
    int32_t begin = 0;
    int32_t end = 0;
  };
  Range PooledAmong(int32_t position, int32_t count) const;
  absl::Span<const int32_t> tokens() const { return tokens_; }
  int32_t computed() const { return computed_; }
  // Tokens behind the prompt: of the reasoning and the answer.
  int32_t answer_tokens() const { return static_cast<int32_t>(tokens_.size()) - prompt_tokens_; }

  // Tokens to compute until the next one can be sampled (scoring, embedding: until all results are
  // there).
  int32_t remaining() const;
  // Whether what remains is the token sampled last, with the tokens forced behind it, rather than
  // tokens of the prompt.
  bool decoding() const { return sampled_ && computed_ >= given_tokens_; }
  // The model has not yet been asked for a token.
  bool awaits_first_token() const { return !sampled_; }
  // How the request ends where the model need not run at all.
  std::optional<FinishReason> trivial_end() const;

  // The key under which the prompt's prefixes are stored; without an owner: under none.
  const PrefixKey& store_key() const { return store_key_; }
  // Tokens that an earlier prompt began with too, as far as is known.
  int64_t sighted() const { return sighted_; }
  void set_store_key(PrefixKey key, int64_t sighted) {
    store_key_ = std::move(key);
    sighted_ = sighted;
  }
  // The stored prefix could not be read: it is computed, and may be written again.
  void DistrustStore() { trusts_store_ = false; }
  bool trusts_store() const { return trusts_store_; }
  // Positions up to which the tokens are to be stored: steps end there. Take tells whether
  // computed() is one of them, once for each.
  void AddStorePoint(int32_t position);
  bool TakeStorePoint();

  BlockTable& block_table() { return block_table_; }
  const BlockTable& block_table() const { return block_table_; }

  // For the scheduler: the blocks of the table hold the keys and values of [0, computed).
  void set_computed(int32_t computed) { computed_ = computed; }
  // The scheduler's count of planned sequences when this one was planned last.
  int64_t last_planned() const { return last_planned_; }
  void set_last_planned(int64_t count) { last_planned_ = count; }

  // Snapshots of a recurrent model's state are to be taken at the request's borders, and where the
  // scheduler wants them: steps end there. The position of the next one.
  std::optional<int32_t> next_snapshot() const;
  void AddSnapshot(int32_t position, Snapshot snapshot = Snapshot::kIfSpare);
  // The position of a snapshot, yet to be taken, for a sequence that shares the first `common`
  // tokens: one that is planned, or a new one where that saves more. 0: there will be none.
  int32_t SnapshotFor(int32_t common);
  // What snapshot is to be taken at computed(): once for each position.
  Snapshot TakeSnapshotPoint();
  // The sequence runs, with `cached_tokens` tokens from the cache; again, after a preemption.
  void OnAdmitted(int32_t cached_tokens, MonotonicTime now);
  void OnPreempted();

  // Whether there is room for no more than the next token.
  bool ends_with_next() const { return Room() <= 1; }
  // How the next token is to be picked from the logits of the last one; the views are valid until
  // the token is taken. The grammar's error where its mask could not be found. REQUIRES: ready().
  absl::StatusOr<SamplingRow> NextSample() const;

  // Guesses that the tokens of `draft` come next, with the tokens that the grammar then forces: at
  // most `most` guessed tokens, and as far as *work reaches. Returns how many tokens of the draft
  // are guessed: not those behind one that the grammar does not allow, that would end the answer,
  // or for which there is no room. May be called again, to go on. REQUIRES: ready(), and
  // AllowedTokens() is OK.
  int32_t ExtendGuess(absl::Span<const int32_t> draft, int32_t most, int64_t* work);
  void DropGuess() { guess_.reset(); }
  int32_t num_guessed() const {
    return guess_ ? static_cast<int32_t>(guess_->tokens.size() - tokens_.size()) : 0;
  }
  // tokens(), and behind them what is guessed.
  absl::Span<const int32_t> guessed_context() const { return guess_ ? guess_->tokens : tokens_; }
  // A place where a token is sampled beside the one behind tokens(): it counts if the guess is
  // right until there.
  struct GuessedPoint {
    int32_t end = 0;                     // the token comes behind guessed_context()[0, end)
    std::vector<uint64_t> allowed = {};  // the grammar's mask there, as of AllowedTokens()
  };
  absl::Span<const GuessedPoint> guessed_points() const {
    return guess_ ? absl::MakeConstSpan(guess_->points) : absl::Span<const GuessedPoint>();
  }
  // How the token behind a guessed point is to be picked; as NextSample.
  SamplingRow SampleAt(const GuessedPoint& point) const;
  // Whether the tokens that were taken are the guessed ones up to the point, and the grammar's mask
  // is the one that the token there was sampled by.
  bool Reaches(const GuessedPoint& point) const;
  // What the drafter keeps; null at first.
  std::unique_ptr<DraftMemory>& draft_memory() { return draft_memory_; }
  // Whether TakeSample reads those logits too.
  bool reads_logits() const {
    const RequestSpec& spec = request_->spec();
    return spec.wants_logprob || (reads_probabilities() && !reasons_first());
  }
  // Whether TakeSample reads them, or will once the answer begins.
  bool will_read_logits() const { return reads_logits() || reads_probabilities(); }
  // Appends the token that was picked as NextSample has it, and those that the grammar forces.
  // Where *work (see GrammarMatcher) does not reach for them, nothing is appended yet, and the
  // sequence is not ready(). `logits` may be empty unless reads_logits(). Returns how the answer
  // ends, if it does. REQUIRES: ready().
  absl::StatusOr<std::optional<FinishReason>> TakeSample(const absl::StatusOr<int32_t>& picked,
                                                         absl::Span<const float> logits,
                                                         MonotonicTime now, int64_t* work);
  // Whether the grammar's mask for the next token is known. Until then the last of tokens() is not
  // to be computed: Follow may append tokens, which would be computed together with it.
  bool ready() const {
    return !grammar_ || (!pending_ && (!allowed_.empty() || !grammar_status_.ok()));
  }
  // Goes on with the grammar until ready(), or *work is spent. Returns how the answer ends, if it
  // does.
  absl::StatusOr<std::optional<FinishReason>> Follow(int64_t* work);
  // The work that Follow has spent so far, plus one, where it was not enough and the sequence waits
  // for more. 0: the sequence does not wait.
  int64_t waited_for_work() const { return waits_ ? followed_ + 1 : 0; }
  // The tokens that may come next, as a mask (see TokenTrie); empty: any. Valid until the next
  // token is taken. REQUIRES: ready().
  absl::StatusOr<absl::Span<const uint64_t>> AllowedTokens() const;
  // Whether logits are read, for probabilities, also of tokens that the grammar does not allow.
  bool needs_all_logits() const {
    const RequestSpec& spec = request_->spec();
    return !grammar_ || spec.wants_logprob || spec.wants_first_choices;
  }
  // Scores token `position` + 1 by the logits of `position`. Call with ascending positions; after a
  // preemption, from the first one again.
  absl::Status Score(int32_t position, absl::Span<const float> logits);
  // Adds the hidden state of the token at `position` to the embedding. Call in the same order.
  absl::Status Pool(int32_t position, absl::Span<const float> hidden);

  // After TakeSample: the time since the token before, or for the first since submission.
  absl::Duration last_latency() const { return last_latency_; }

  // The request's result. Call one of the two, once, at the end. An answer that ends where its
  // constraint does not is an error.
  Generation TakeResult(FinishReason finish, MonotonicTime now);
  Generation TakeError(absl::Status status, MonotonicTime now);
  // Hands the result to the request, and to the threads that wait for it. Call once.
  void Deliver(Generation result);

  // timeout_ms is a time of the model, spent on this sequence: its share of each step, by tokens.
  // Neither waiting for other sequences counts, nor what is computed again after a preemption. So a
  // request that has time enough when it runs alone has it in any company.

  // A step begins that computes `num_tokens` tokens of this sequence among `all_tokens`, guessed
  // tokens included.
  void BeginShare(int32_t num_tokens, int32_t all_tokens, MonotonicTime now);
  // The step has ended; the request expires where its time is over.
  void EndShare(MonotonicTime now);

 private:
  std::optional<FinishReason> Append(int32_t token, double logprob, MonotonicTime now);
  absl::StatusOr<std::optional<FinishReason>> Reason(int32_t token, double logprob,
                                                     MonotonicTime now);
  std::optional<FinishReason> BeginConstrained(MonotonicTime now);
  std::optional<FinishReason> LimitReached() const;
  void Publish(int32_t token, double logprob, MonotonicTime now);
  struct SnapshotPoint {
    int32_t position;
    Snapshot snapshot;
  };
  void PlanBorders();
  std::vector<SnapshotPoint>::const_iterator FirstPointBehind(int32_t position) const;
  absl::StatusOr<std::optional<FinishReason>> AppendPending(MonotonicTime now, int64_t* work);
  // Appends tokens that the grammar has accepted; `sampled` is the first one's logprob, if known.
  std::optional<FinishReason> AppendConstrained(absl::Span<const int32_t> tokens, double sampled,
                                                MonotonicTime now);
  bool AnswerIsWhole() const;
  // Whether it reasons before a constrained answer: that reasoning is not text of the answer.
  bool reasons_first() const { return reasoning_ && request_->spec().constraint != nullptr; }
  bool reads_probabilities() const {
    const RequestSpec& spec = request_->spec();
    return spec.wants_probability || (spec.wants_first_choices && !chose_);
  }
  bool completes() const {
    return grammar_ && request_->spec().options.on_length == OnLength::kComplete;
  }
  int32_t Room() const;
  SamplingRow SampleBehind(absl::Span<const int32_t> context,
                           absl::Span<const uint64_t> allowed) const;
  absl::Span<const uint64_t> Mask(absl::Span<const uint64_t> of_grammar) const;
  absl::Status FillAllowed(int64_t* work);
  absl::Status CutShort(FinishReason finish) const;
  std::string EnoughTokens() const;
  bool IsAllowed(int32_t token) const;
  // REQUIRES: the token is allowed.
  double LogProbabilityAmongAllowed(absl::Span<const float> logits, int32_t token) const;
  void ReportChoices(absl::Span<const float> logits);
  absl::Duration TimeLeft() const;

  const std::shared_ptr<Request> request_;
  const bool recurrent_;
  const std::string adapters_;
  const Tokenizer* const tokenizer_;
  const int32_t token_limit_;
  const int32_t prompt_tokens_;
  std::vector<int32_t> tokens_;
  int32_t given_tokens_;  // the prompt, and the tokens that every constrained answer begins with
  const uint64_t draw_seed_;
  Priority priority_;
  int32_t computed_ = 0;
  int64_t last_planned_ = 0;
  PrefixKey store_key_;
  int64_t sighted_ = 0;
  bool trusts_store_ = true;
  std::vector<int32_t> store_points_;     // positions yet to be reached
  std::vector<SnapshotPoint> snapshots_;  // yet to be reached, ascending
  BlockTable block_table_;

  std::optional<Reasoning> reasoning_;  // null once the answer has begun
  int32_t answer_begin_;
  AnswerText answer_text_;
  // Null before a constrained answer begins. Stands behind all tokens_, and, at the end, behind the
  // forced tokens that a limit left out.
  std::optional<GrammarMatcher> grammar_;
  std::vector<uint64_t> allowed_;  // empty: not known since the last token
  absl::Status grammar_status_;    // why it will not be known
  // A token that was sampled and is not appended yet, and how far AcceptWithForced is with it.
  struct Pending {
    int32_t token = 0;
    double logprob = 0;
    bool accepted = false;             // by the grammar
    bool cut_with_forced = false;      // its text was cut into tokens together with the forced text
    bool followed_forced = false;      // the grammar is behind the forced text
    std::vector<int32_t> tokens = {};  // to be appended; empty: not known
  };
  std::optional<Pending> pending_;
  absl::StatusOr<std::vector<int32_t>> AcceptWithForced(GrammarMatcher* grammar, Pending* sampled,
                                                        int32_t room, bool can_complete,
                                                        int64_t* work) const;
  absl::StatusOr<bool> FitsWithForced(GrammarMatcher* grammar, int32_t room, int64_t* work) const;
  // The grammar's mask, and what was found with it.
  struct Allowed {
    std::vector<uint64_t> mask = {};
    bool can_complete = false;  // as can_complete_
    bool is_far = false;        // no end is known that fits, as was found before
    bool left_out = false;      // it lacks tokens behind which there is no room to end the answer
  };
  absl::Status FillAllowed(GrammarMatcher* grammar, int32_t room, int64_t* work,
                           Allowed* allowed) const;
  struct Guess {
    std::vector<int32_t> tokens = {};  // tokens_, and behind them the guessed ones
    std::vector<GuessedPoint> points = {};
    std::optional<GrammarMatcher> grammar = {};  // behind all tokens; null: there is none there
    bool can_complete = false;
  };
  std::vector<int32_t> GuessNext(int32_t token, int32_t most, int64_t* work, Guess* guess) const;
  std::optional<Guess> guess_;
  std::unique_ptr<DraftMemory> draft_memory_;
  bool waits_ = false;                     // a turn of Follow was not enough
  int64_t followed_ = 0;                   // the work that Follow has spent
  bool cut_in_forced_ = false;             // a limit left out forced tokens
  bool can_complete_ = false;              // completes(): an answer is known to fit into the room
  size_t far_at_ = 0;                      // behind so many tokens none was
  bool led_to_end_ = false;                // Allowed::left_out of any token of the answer
  std::optional<FinishReason> start_end_;  // how the answer ended before the model was asked
  bool sampled_ = false;                   // the model was asked
  bool chose_ = false;                     // the model was asked for the answer's first token
  int32_t asked_ = 0;                      // tokens in generation_.mean_logprob
  double logprob_ = 0;                     // of the answer so far, among the allowed tokens
  Generation generation_;                  // text and times as far as they are known
  size_t streamed_bytes_ = 0;              // of generation_.text
  std::vector<double> pooled_;  // (hidden_size,) sum of the hidden states of [0, pooled_until_)
  int32_t pooled_until_ = 0;
  absl::Duration spent_ = absl::ZeroDuration();  // of timeout_ms, by shares of ended steps
  MonotonicTime share_began_;
  double share_ = 0;     // of the step that began last
  int32_t charged_ = 0;  // tokens [0, charged_) have counted in a share
  MonotonicTime last_token_;
  absl::Duration last_latency_;
  bool delivered_ = false;
};

// A sequence that the scheduler has no more, and its result, not yet delivered.
struct EndedSequence {
  std::unique_ptr<Sequence> sequence;
  Generation result;
};

}  // namespace lm

#endif  // LM_ENGINE_RUNTIME_SEQUENCE_H_
