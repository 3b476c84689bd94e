// Sequence: a request while the engine works on it. It knows which of its tokens have been
// computed, where their keys and values lie, and what the answer is so far.
//
//   tokens    [ prompt ............... | answer ...... ]
//   computed  [ 0, computed() )  have keys and values in the cache
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
#include "engine/runtime/block_manager.h"
#include "engine/runtime/request.h"
#include "engine/runtime/sampler.h"
#include "engine/runtime/stop_matcher.h"
#include "engine/text/detokenizer.h"
#include "engine/text/tokenizer.h"

namespace lm {

// Not thread-safe: the engine's thread owns it.
class Sequence {
 public:
  // Prompt and answer have at most `token_limit` tokens together.
  // REQUIRES: *tokenizer outlives this.
  Sequence(std::shared_ptr<Request> request, const Tokenizer* tokenizer, int32_t token_limit);
  // Finishes the request, with an error, where nothing was delivered: no waiter is forgotten.
  ~Sequence();

  const Request& request() const { return *request_; }
  absl::string_view salt() const { return request_->spec().salt; }
  bool scoring() const { return request_->spec().score_prompt; }
  bool embedding() const { return request_->spec().embed.has_value(); }
  // Whether results of every token of the prompt are wanted, not only of the last one: then a
  // cached prefix, which has keys and values only, is of no use.
  bool wants_every_token() const { return scoring() || request_->spec().embed == Pooling::kMean; }
  absl::Span<const int32_t> tokens() const { return tokens_; }
  int32_t computed() const { return computed_; }
  int32_t answer_tokens() const { return static_cast<int32_t>(tokens_.size()) - prompt_tokens_; }

  // Tokens to compute until the next one can be sampled (scoring, embedding: until all results are
  // there).
  int32_t remaining() const;
  // Whether that is the one token sampled last, rather than (a part of) a prompt.
  bool decoding() const { return answer_tokens() > 0 && remaining() == 1; }
  // How the request ends where the model need not run at all: no answer or score is asked for.
  bool trivial() const {
    if (embedding()) return false;
    return scoring() ? remaining() == 0 : request_->spec().options.max_tokens == 0;
  }

  BlockTable& block_table() { return block_table_; }
  const BlockTable& block_table() const { return block_table_; }

  // For the scheduler: keys and values of [0, computed) are in the block table.
  void set_computed(int32_t computed) { computed_ = computed; }
  // The first admission, with this many tokens from the cache, or a later one after a preemption.
  void OnAdmitted(int32_t cached_tokens, absl::Time now);
  void OnPreempted() { computed_ = 0; }

  // Picks the next token from the logits of the last one, and appends it. How the answer ends, if
  // it does.
  absl::StatusOr<std::optional<FinishReason>> SampleNext(absl::Span<const float> logits,
                                                         absl::Time now, Sampler::Scratch* scratch);
  // Scores token `position` + 1 by the logits of `position`. Call with ascending positions; after a
  // preemption, from the first one again.
  absl::Status Score(int32_t position, absl::Span<const float> logits);
  // Adds the hidden state of the token at `position` to the embedding. Call likewise.
  absl::Status Pool(int32_t position, absl::Span<const float> hidden);

  // Since the token before the last, and since submission for the first; after SampleNext.
  absl::Duration last_latency() const { return last_latency_; }

  // The request's result; call one of these, once, when nothing more is to come.
  Generation TakeResult(FinishReason finish, absl::Time now);
  Generation TakeError(absl::Status status, absl::Time now);
  // Hands the result to whoever waits. Call once.
  void Deliver(Generation result);
  // Marks the request as out of time.
  void Expire() { request_->Expire(); }

 private:
  std::optional<FinishReason> Append(int32_t token);
  void Publish(int32_t token, double logprob, absl::Time now);

  const std::shared_ptr<Request> request_;
  const Tokenizer* const tokenizer_;
  const int32_t token_limit_;
  const int32_t prompt_tokens_;
  std::vector<int32_t> tokens_;
  int32_t computed_ = 0;
  BlockTable block_table_;

  Sampler sampler_;
  Detokenizer detokenizer_;
  StopMatcher stop_matcher_;
  Generation generation_;       // text and times as far as they are known
  size_t streamed_bytes_ = 0;   // of its text
  std::vector<double> pooled_;  // (hidden_size,) sum of the hidden states of [0, pooled_until_)
  int32_t pooled_until_ = 0;
  absl::Time last_token_;
  absl::Duration last_latency_;
  bool delivered_ = false;
};

}  // namespace lm

#endif  // LM_ENGINE_RUNTIME_SEQUENCE_H_
