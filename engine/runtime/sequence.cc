#include "engine/runtime/sequence.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"

namespace lm {
namespace {

// Made in advance: it is needed when there is no memory for a message.
const absl::Status& LostError() {
  static const absl::Status* const error =
      new absl::Status(absl::StatusCode::kResourceExhausted, "the engine ran out of memory");
  return *error;
}

// Natural log of the probability of `token`. REQUIRES: the logits are finite.
double LogProbability(absl::Span<const float> logits, int32_t token) {
  const double greatest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (float logit : logits) sum += std::exp(logit - greatest);
  return logits[token] - greatest - std::log(sum);
}

}  // namespace

Sequence::Sequence(std::shared_ptr<Request> request, const Tokenizer* tokenizer,
                   int32_t token_limit)
    : request_(std::move(request)),
      tokenizer_(tokenizer),
      token_limit_(token_limit),
      prompt_tokens_(static_cast<int32_t>(request_->spec().prompt.size())),
      tokens_(request_->spec().prompt),
      sampler_(&request_->spec().options),
      detokenizer_(tokenizer),
      stop_matcher_(request_->spec().options.stop),
      last_token_(request_->submitted()) {
  generation_.tokens_in = prompt_tokens_;
  generation_.queued = absl::InfiniteDuration();  // not yet admitted
  LostError();
}

Sequence::~Sequence() {
  if (delivered_) return;
  Generation lost;
  lost.status = LostError();
  Deliver(std::move(lost));
}

void Sequence::Deliver(Generation result) {
  delivered_ = true;
  request_->Finish(std::move(result));
}

int32_t Sequence::remaining() const {
  // The last token of a text to score predicts nothing that is asked for.
  return static_cast<int32_t>(tokens_.size()) - computed_ - (scoring() ? 1 : 0);
}

void Sequence::OnAdmitted(int32_t cached_tokens, absl::Time now) {
  if (generation_.queued != absl::InfiniteDuration()) return;
  generation_.queued = now - request_->submitted();
  generation_.tokens_cached = cached_tokens;
}

absl::StatusOr<std::optional<FinishReason>> Sequence::SampleNext(absl::Span<const float> logits,
                                                                 absl::Time now,
                                                                 Sampler::Scratch* scratch) {
  assert(remaining() == 0 && !scoring());
  ASSIGN_OR_RETURN(const int32_t token, sampler_.Sample(logits, tokens_, scratch));
  if (answer_tokens() == 0) generation_.time_to_first_token = now - request_->submitted();
  last_latency_ = now - std::exchange(last_token_, now);
  const int32_t before = answer_tokens();
  const std::optional<FinishReason> finish = Append(token);
  if (request_->spec().stream && answer_tokens() > before) {
    Publish(token, LogProbability(logits, token), now);
  }
  return finish;
}

// Streams the token and what it made certain of the text.
void Sequence::Publish(int32_t token, double logprob, absl::Time now) {
  request_->PublishToken({.token = token,
                          .piece = generation_.text.substr(streamed_bytes_),
                          .logprob = logprob,
                          .since_submission = now - request_->submitted()});
  streamed_bytes_ = generation_.text.size();
}

std::optional<FinishReason> Sequence::Append(int32_t token) {
  if (tokenizer_->IsEndOfGeneration(token)) return FinishReason::kStop;
  tokens_.push_back(token);
  if (stop_matcher_.Append(detokenizer_.Append(token), &generation_.text)) {
    return FinishReason::kStop;
  }
  std::optional<FinishReason> finish;
  if (answer_tokens() >= request_->spec().options.max_tokens) {
    finish = FinishReason::kLength;
  } else if (static_cast<int32_t>(tokens_.size()) >= token_limit_) {
    finish = FinishReason::kContext;
  }
  return finish;
}

absl::Status Sequence::Score(int32_t position, absl::Span<const float> logits) {
  assert(scoring() && position + 1 < prompt_tokens_);
  RETURN_IF_ERROR(CheckFinite(logits));
  // Computed anew after a preemption it is the same number.
  if (position < static_cast<int32_t>(generation_.prompt_logprobs.size())) return absl::OkStatus();
  const double logprob = LogProbability(logits, tokens_[position + 1]);
  generation_.prompt_logprobs.push_back(static_cast<float>(logprob));
  return absl::OkStatus();
}

absl::Status Sequence::Pool(int32_t position, absl::Span<const float> hidden) {
  assert(embedding());
  for (float value : hidden) {
    if (!std::isfinite(value)) {
      return absl::InternalError(absl::StrCat("the hidden state of token ", position,
                                              " is not finite; the model's weights are damaged"));
    }
  }
  if (position < pooled_until_) return absl::OkStatus();  // as for Score
  pooled_until_ = position + 1;
  pooled_.resize(hidden.size());
  for (size_t i = 0; i < hidden.size(); ++i) pooled_[i] += hidden[i];
  return absl::OkStatus();
}

Generation Sequence::TakeResult(FinishReason finish, absl::Time now) {
  Generation result = std::move(generation_);
  // The mean is of doubles added in the order of the tokens: no batch or chunk can change it.
  const double rows = request_->spec().embed == Pooling::kMean ? prompt_tokens_ : 1;
  for (double sum : pooled_) result.embedding.push_back(static_cast<float>(sum / rows));
  // Nothing follows a stop string; every other end releases what was held back. (The replacement
  // character of a cut-off one may itself complete a stop string.)
  if (!stop_matcher_.matched() && !stop_matcher_.Append(detokenizer_.Finish(), &result.text)) {
    stop_matcher_.Flush(&result.text);
  }
  if (request_->spec().stream && result.text.size() > streamed_bytes_) {
    request_->PublishToken({.piece = result.text.substr(streamed_bytes_),
                            .since_submission = now - request_->submitted()});
  }
  result.finish = finish;
  result.tokens.assign(tokens_.begin() + prompt_tokens_, tokens_.end());
  result.tokens_out = static_cast<int32_t>(result.tokens.size());
  result.total = now - request_->submitted();
  result.queued = std::min(result.queued, result.total);
  return result;
}

Generation Sequence::TakeError(absl::Status status, absl::Time now) {
  Generation result;
  result.status = std::move(status);
  result.tokens_in = prompt_tokens_;
  result.tokens_cached = generation_.tokens_cached;
  result.time_to_first_token = generation_.time_to_first_token;
  result.total = now - request_->submitted();
  result.queued = std::min(generation_.queued, result.total);
  return result;
}

}  // namespace lm
