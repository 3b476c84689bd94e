// Request: one generation on its way, shared by the thread that waits for it and the engine.
#ifndef LM_ENGINE_RUNTIME_REQUEST_H_
#define LM_ENGINE_RUNTIME_REQUEST_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "engine/base/cond_var.h"
#include "engine/base/monotonic_time.h"
#include "engine/cache/prefix_store.h"
#include "engine/model/adapter_set.h"
#include "engine/model/pooling.h"
#include "engine/runtime/batch_cancellation.h"
#include "engine/runtime/constraint_cache.h"
#include "engine/runtime/generation_options.h"
#include "engine/text/chat/thinking_marks.h"

namespace lm {

enum class FinishReason {
  kStop,     // the model ended its answer, or a stop string came
  kLength,   // max_tokens
  kContext,  // the context is full
  kError,    // Generation::status says what
};
absl::string_view FinishReasonName(FinishReason reason);  // "stop", "length", "context", "error"

// How an answer may go on where there is a first choice: its bytes as far as a token behind what is
// given (maybe not whole characters), "" for an answer that is over there, and the natural log of
// the token's probability among all of the vocabulary.
struct FirstChoice {
  std::string text = {};
  float logprob = 0;
};

// What a generator is asked to do, as it has read it.
struct RequestSpec {
  std::vector<int32_t> prompt = {};  // tokens; not empty where an engine of this process answers
  // The prompt in a text form that is its alone: what the memo knows it by. Of an embedding, the
  // text before on_overflow; of ranks, a JSON array of query and text. Empty where it is not to
  // know it.
  std::string text = {};
  // RenderedChat::TemplateEnd: with a mark there the answer begins as reasoning. `text` tells it.
  std::string template_end = {};
  // The model's; null: those that are usual.
  std::shared_ptr<const ThinkingMarks> thinking_marks = {};
  // options.thinking_tokens, as far as the context leaves room for them beside prompt and answer.
  std::optional<int32_t> reasoning_tokens = {};
  int32_t closing_tokens = 0;  // the most that end them for the model
  // What an answer begins with behind its reasoning, which is no part of it.
  std::vector<int32_t> begun = {};
  // What a server elsewhere is told beside `text` and what OptionsOfAnswer has of the options.
  std::string told = {};
  // options.on_overflow, where a server elsewhere sees to it: so many bytes at the end of the last
  // message stay. nullopt: the prompt is as on_overflow has left it. Of a text that is embedded so
  // many at its beginning stay, whoever sees to it.
  std::optional<int64_t> kept_end = {};
  GenerationOptions options = {};
  std::string salt = {};  // whose prefix cache
  // What the model is computed with: options.lora, by numbers. Generator::Prepare fills it in.
  AdapterSet adapters = {};
  // Positions in the prompt, ascending, where others are likely to part from it: a recurrent model
  // keeps its state there. Nothing of the answer depends on them.
  std::vector<int32_t> borders = {};
  // Positions in the prompt: what is computed up to there is stored, were it never used again.
  std::vector<int32_t> store = {};
  // Instead of generating: the log-probability of each prompt token given those before it.
  bool score_prompt = false;
  // Instead of generating: the prompt's hidden states, after the model's output norm, as one
  // vector, and what the model makes of that.
  std::optional<Pooling> embed = {};
  // embed: that is the scores of the labels which the model was made to give.
  bool ranks = false;
  // Hands the answer out token by token too: Request::WaitForToken.
  bool stream = false;
  // Report Generation::first_choices.
  bool wants_first_choices = false;
  // Report how probable the answer is, as the only one of Generation::first_choices: its text and
  // the natural log of the product of its tokens' probabilities, each among those that the
  // constraint allowed there.
  bool wants_probability = false;
  // Report Generation::mean_logprob, and with `stream` StreamedToken::logprob.
  bool wants_logprob = false;
  // options.constraint, compiled for this model; Engine::Submit fills it in.
  std::shared_ptr<const CompiledConstraint> constraint = {};
};

// A token of an answer, as it is made.
struct StreamedToken {
  // Negative for a last piece that no token of its own brings: text that was held back (it might
  // have become a stop string) or a broken character.
  int32_t token = -1;
  // What of the answer is certain with this token and was not before; whole characters, maybe none.
  std::string piece = {};
  // wants_logprob: natural log of the probability that the model gave it, before temperature and
  // the like; NaN without, and for a token that a constraint left no choice about, of which the
  // model was not asked.
  double logprob = 0;
  absl::Duration since_submission = {};
};

class Request;

// Told of a request's fate, besides the threads that wait for it. No method may throw.
class RequestListener {
 public:
  virtual ~RequestListener() = default;
  // The result is there. On the thread that made it, after the waiting threads can see it.
  virtual void OnFinished(const Request&) noexcept {}
  // It has become interactive. On the thread that raised it, once.
  virtual void OnRaised(Request&) noexcept {}
  // It was cancelled, or has expired. On the thread that said so, once.
  virtual void OnAbandoned(Request&) noexcept {}
  // A thread waits for a request that has a timeout_ms: every few milliseconds, on that thread
  // (Request::KeepDeadline).
  virtual void OnWaiting(Request&) noexcept {}
  // A waiter is about to get the result. On its thread.
  virtual void OnCollected(const Request&) noexcept {}
};

// Tells another listener, which may be null, what becomes of the request.
class ForwardingListener : public RequestListener {
 public:
  explicit ForwardingListener(std::shared_ptr<RequestListener> inner) : inner_(std::move(inner)) {}

  void OnFinished(const Request& request) noexcept override {
    if (inner_ != nullptr) inner_->OnFinished(request);
  }
  void OnAbandoned(Request& request) noexcept override {
    if (inner_ != nullptr) inner_->OnAbandoned(request);
  }
  void OnCollected(const Request& request) noexcept override {
    if (inner_ != nullptr) inner_->OnCollected(request);
  }

 private:
  const std::shared_ptr<RequestListener> inner_;
};

struct Generation {
  absl::Status status = {};  // OK, or why there is no answer
  std::string text = {};     // valid UTF-8
  FinishReason finish = FinishReason::kError;
  // The answer's, without the model's end-of-generation token; the ones that spelled a stop string
  // are among them, although their text is not in `text`.
  std::vector<int32_t> tokens = {};
  // score_prompt: natural logs for prompt[1], prompt[2], ...
  std::vector<float> prompt_logprobs = {};
  // embed: (hidden_size,), not normalised; or the scores.
  std::vector<float> embedding = {};
  // wants_first_choices: the tokens that the constraint allowed where the model was first asked, in
  // ascending order of their numbers, each behind what every answer begins with; of the options
  // only logit_bias touches their probabilities.
  // wants_probability: the answer. Of a vote: what was said, with the shares (vote.h).
  std::vector<FirstChoice> first_choices = {};
  // wants_logprob: of the tokens that the model was asked for, its answer's end among them; 0 where
  // there are none. Neither temperature nor a constraint touches it.
  double mean_logprob = 0;
  bool remembered = false;    // the memo had it, or another call asked for it: nothing was computed
  int32_t tokens_in = 0;      // prompt
  int32_t in_vain = 0;        // of those, for tries before the last one, at servers
  int32_t tokens_cached = 0;  // of those, found in the prefix cache
  int32_t tokens_out = 0;
  absl::Duration queued = {};               // submit -> first scheduled
  absl::Duration time_to_first_token = {};  // submit -> first token
  absl::Duration total = {};                // submit -> done
};

// Thread-safe.
class Request {
 public:
  explicit Request(RequestSpec spec);

  // Waits until the answer is there, at most `timeout`. True when it is. Once the model has worked
  // on it for its timeout_ms, waiting (or the engine, at the end of its step) gives it up: the
  // result is DeadlineExceeded.
  bool WaitFor(absl::Duration timeout);

  // RequestSpec::stream only. Waits likewise until a token can be taken or the answer is complete;
  // true when one of them is so.
  bool WaitForToken(absl::Duration timeout);
  // The next token of a streamed answer; nullopt where none is there (any more, if the answer is
  // complete). Where the answer is no error, its pieces together are Generation::text.
  std::optional<StreamedToken> TakeToken();

  // The answer is not wanted any more: the engine drops the request at the next opportunity, in the
  // middle of a step if no other request is in it, and finishes it with a Cancelled status. Returns
  // at once.
  void Cancel() { Abandon(State::kCancelled); }
  bool cancelled() const { return state_.load(std::memory_order_relaxed) == State::kCancelled; }

  // An interactive caller waits for it too: it goes before batch from the next step on. Returns at
  // once.
  void Raise();
  // The options', or interactive once it was raised.
  Priority priority() const { return priority_.load(std::memory_order_acquire); }

  // REQUIRES: WaitFor has returned true.
  const Generation& result() const;

  const RequestSpec& spec() const { return spec_; }
  MonotonicTime submitted() const { return submitted_; }
  absl::Time date() const { return date_; }  // of the same moment, to be shown

  // For the engine --------------------------------------------------------------------------------

  // When, in the step that it takes part in, the request will have had its timeout_ms of the model;
  // infinitely late where it has none, or is in no step: that time does not count. KeepDeadline
  // abandons the request then, which WaitFor calls.
  void set_deadline(MonotonicTime deadline) { deadline_.store(deadline.ToNanos()); }
  MonotonicTime deadline() const { return MonotonicTime::FromNanos(deadline_.load()); }
  // Somebody waits for it, or for what comes of it, and says so every few milliseconds: it expires
  // where its deadline has passed.
  void KeepDeadline();
  // Its time is over: as Cancel, but the status is DeadlineExceeded.
  void Expire() { Abandon(State::kExpired); }
  // Cancelled or expired, whichever came first.
  bool abandoned() const { return state_.load(std::memory_order_relaxed) != State::kWanted; }
  // The status that an abandoned request ends with.
  absl::Status AbandonedStatus() const;

  // What is told when the request is cancelled or expires. Call these three before another thread
  // has the request.
  void set_cancellation(std::shared_ptr<BatchCancellation> c) { cancellation_ = std::move(c); }
  // Counts the requests that were raised.
  void set_raises(std::shared_ptr<std::atomic<uint64_t>> raises) { raises_ = std::move(raises); }
  void set_listener(std::shared_ptr<RequestListener> listener) { listener_ = std::move(listener); }
  // Hands out a token of a streamed answer.
  void PublishToken(StreamedToken token);
  // Publishes the result and wakes the waiter. Call once.
  void Finish(Generation result);

 private:
  enum class State : uint8_t { kWanted, kCancelled, kExpired };
  void Abandon(State state);
  bool Wait(const absl::Condition& ready, absl::Duration timeout);

  const RequestSpec spec_;
  const MonotonicTime submitted_ = MonotonicTime::Now();
  const absl::Time date_ = absl::Now();
  std::atomic<int64_t> deadline_;  // MonotonicTime::ToNanos
  std::shared_ptr<BatchCancellation> cancellation_;
  std::shared_ptr<std::atomic<uint64_t>> raises_;  // may be null
  std::shared_ptr<RequestListener> listener_;      // may be null
  std::atomic<Priority> priority_;
  std::atomic<State> state_{State::kWanted};
  mutable absl::Mutex mutex_;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<StreamedToken> streamed_ ABSL_GUARDED_BY(mutex_);
  size_t taken_ ABSL_GUARDED_BY(mutex_) = 0;  // of streamed_
  CondVar news_;                              // of done_ and streamed_
  Generation result_;                         // written before done_, constant after
};

}  // namespace lm

#endif  // LM_ENGINE_RUNTIME_REQUEST_H_
