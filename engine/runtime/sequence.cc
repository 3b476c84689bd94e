#include "engine/runtime/sequence.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/backend/log_sum_exp.h"
#include "engine/base/digest.h"
#include "engine/base/monotonic_time.h"
#include "engine/base/out_of_memory.h"
#include "engine/base/printable.h"
#include "engine/base/status_macros.h"
#include "engine/base/utf8.h"

namespace lm {
namespace {

// The logprob of a token that the grammar forced: the model was not asked.
constexpr double kNotAsked = std::numeric_limits<double>::quiet_NaN();
// A logit with its logit_bias is between -kMostBiased and kMostBiased: then the difference of two
// is a number of F32.
constexpr double kMostBiased = 1e37;

// An empty mask has all tokens.
bool IsInMask(absl::Span<const uint64_t> mask, int32_t token) {
  const size_t word = token / 64;
  return mask.empty() || (word < mask.size() && (mask[word] >> (token % 64) & 1) != 0);
}

// Natural log of the probability of `token` among the tokens of the mask; -infinity where the mask
// lacks it. REQUIRES: the logits are finite.
double LogProbability(absl::Span<const float> logits, absl::Span<const uint64_t> mask,
                      int32_t token) {
  if (!IsInMask(mask, token)) return -std::numeric_limits<double>::infinity();
  return logits[token] - LogSumExp(logits, mask);
}

// Differs between prompts, under one seed too: each row of a table is drawn by its own numbers.
uint64_t DrawSeed(const RequestSpec& spec) {
  const auto* const bytes = reinterpret_cast<const char*>(spec.prompt.data());
  return DigestOf({bytes, spec.prompt.size() * sizeof(spec.prompt[0])}, spec.options.seed).low;
}

}  // namespace

Sequence::Sequence(std::shared_ptr<Request> request, const Tokenizer* tokenizer,
                   int32_t token_limit, bool recurrent, std::string adapters)
    : request_(std::move(request)),
      recurrent_(recurrent),
      adapters_(std::move(adapters)),
      tokenizer_(tokenizer),
      token_limit_(token_limit),
      prompt_tokens_(static_cast<int32_t>(request_->spec().prompt.size())),
      tokens_(request_->spec().prompt),
      given_tokens_(prompt_tokens_),
      draw_seed_(DrawSeed(request_->spec())),
      priority_(request_->priority()),
      answer_begin_(prompt_tokens_),
      answer_text_(tokenizer, request_->spec()),
      last_token_(request_->submitted()) {
  generation_.tokens_in = prompt_tokens_;
  generation_.queued = absl::InfiniteDuration();  // not yet admitted
  if (!wants_every_token()) PlanBorders();
  if (Reasoning::IsWanted(request_->spec())) {
    reasoning_.emplace(tokenizer, request_->spec());
  } else if (request_->spec().constraint != nullptr) {
    start_end_ = BeginConstrained(MonotonicTime::Now());
    given_tokens_ = static_cast<int32_t>(tokens_.size());
  }
}

std::optional<FinishReason> Sequence::BeginConstrained(MonotonicTime now) {
  const CompiledConstraint& constraint = *request_->spec().constraint;
  grammar_ = constraint.begin;
  if (MostAnswerTokens(request_->spec().options) > 0) {
    return AppendConstrained(constraint.start, kNotAsked, now);
  }
  cut_in_forced_ = !constraint.start.empty();
  return std::nullopt;
}

Sequence::~Sequence() {
  if (delivered_) return;
  Generation lost;
  lost.status = OutOfMemory();
  Deliver(std::move(lost));
}

void Sequence::Deliver(Generation result) {
  delivered_ = true;
  request_->Finish(std::move(result));
}

int32_t Sequence::remaining() const {
  // Scoring needs no logits of the last token: no token of the text follows it.
  return static_cast<int32_t>(tokens_.size()) - computed_ - (scoring() ? 1 : 0);
}

std::optional<FinishReason> Sequence::trivial_end() const {
  if (embedding()) return std::nullopt;
  if (scoring()) return remaining() == 0 ? std::optional(FinishReason::kStop) : std::nullopt;
  if (MostAnswerTokens(request_->spec().options) == 0) return FinishReason::kLength;
  return start_end_;
}

void Sequence::OnAdmitted(int32_t cached_tokens, MonotonicTime now) {
  if (generation_.queued != absl::InfiniteDuration()) return;
  generation_.queued = now - request_->submitted();
  // The tokens that every answer begins with may have been cached too.
  generation_.tokens_cached = std::min(cached_tokens, prompt_tokens_);
}

void Sequence::OnPreempted() {
  computed_ = 0;
  guess_.reset();
  snapshots_.clear();
  store_points_.clear();
  PlanBorders();
}

void Sequence::PlanBorders() {
  if (!recurrent_) return;
  for (const int32_t border : request_->spec().borders) AddSnapshot(border, Snapshot::kNeeded);
}

// Following the grammar counts too: a unit of work is about a nanosecond.
absl::Duration Sequence::TimeLeft() const {
  return absl::Milliseconds(request_->spec().options.timeout_ms) - spent_ -
         absl::Nanoseconds(followed_);
}

void Sequence::BeginShare(int32_t num_tokens, int32_t all_tokens, MonotonicTime now) {
  if (request_->spec().options.timeout_ms == 0) return;
  const int32_t end = computed_ + num_tokens;
  share_ = std::max(0, end - std::max(computed_, charged_)) / static_cast<double>(all_tokens);
  charged_ = std::max(charged_, end - num_guessed());
  share_began_ = now;
  if (share_ > 0) request_->set_deadline(now + TimeLeft() / share_);
}

void Sequence::EndShare(MonotonicTime now) {
  if (request_->spec().options.timeout_ms == 0) return;
  request_->set_deadline(MonotonicTime::InfiniteFuture());
  spent_ += (now - share_began_) * share_;
  if (TimeLeft() <= absl::ZeroDuration()) request_->Expire();
}

std::vector<Sequence::SnapshotPoint>::const_iterator Sequence::FirstPointBehind(
    int32_t position) const {
  return std::upper_bound(
      snapshots_.begin(), snapshots_.end(), position,
      [](int32_t wanted, const SnapshotPoint& point) { return wanted < point.position; });
}

std::optional<int32_t> Sequence::next_snapshot() const {
  const auto next = FirstPointBehind(computed_);
  return next == snapshots_.end() ? std::nullopt : std::optional(next->position);
}

void Sequence::AddSnapshot(int32_t position, Snapshot snapshot) {
  const auto at = snapshots_.begin() + (FirstPointBehind(position - 1) - snapshots_.begin());
  if (at == snapshots_.end() || at->position != position) {
    snapshots_.insert(at, {position, snapshot});
  } else {
    at->snapshot = std::max(at->snapshot, snapshot);
  }
}

int32_t Sequence::SnapshotFor(int32_t common) {
  constexpr int32_t kWorthOne = 32;  // tokens
  const auto behind = FirstPointBehind(common);
  const int32_t planned = behind == snapshots_.begin() ? 0 : behind[-1].position;
  if (common > computed_ && common - std::max(planned, computed_) >= kWorthOne &&
      common < given_tokens_) {
    AddSnapshot(common);
    return common;
  }
  return planned > computed_ ? planned : 0;
}

void Sequence::AddStorePoint(int32_t position) {
  AddSnapshot(position, Snapshot::kNeeded);
  store_points_.push_back(position);
}

bool Sequence::TakeStorePoint() { return std::erase(store_points_, computed_) > 0; }

Snapshot Sequence::TakeSnapshotPoint() {
  const auto behind = FirstPointBehind(computed_);
  Snapshot snapshot = Snapshot::kNone;
  if (behind != snapshots_.begin() && behind[-1].position == computed_) {
    snapshot = behind[-1].snapshot;
  }
  snapshots_.erase(snapshots_.begin(), behind);
  return snapshot;
}

absl::StatusOr<SamplingRow> Sequence::NextSample() const {
  ASSIGN_OR_RETURN(const absl::Span<const uint64_t> allowed, AllowedTokens());
  return SampleBehind(tokens_, allowed);
}

SamplingRow Sequence::SampleAt(const GuessedPoint& point) const {
  return SampleBehind(guessed_context().subspan(0, point.end), Mask(point.allowed));
}

SamplingRow Sequence::SampleBehind(absl::Span<const int32_t> context,
                                   absl::Span<const uint64_t> allowed) const {
  const GenerationOptions& options = request_->spec().options;
  return SamplingRow{.options = {.repeat_penalty = options.repeat_penalty,
                                 .logit_bias = options.logit_bias,
                                 .temperature = options.temperature,
                                 .top_k = options.top_k,
                                 .top_p = options.top_p,
                                 .min_p = options.min_p,
                                 .seed = draw_seed_},
                     .context = context,
                     .allowed = allowed};
}

absl::StatusOr<std::optional<FinishReason>> Sequence::TakeSample(
    const absl::StatusOr<int32_t>& picked, absl::Span<const float> logits, MonotonicTime now,
    int64_t* work) {
  assert(remaining() == 0 && !scoring() && ready());
  ASSIGN_OR_RETURN(const int32_t token, picked);
  if (!sampled_) {
    sampled_ = true;
    generation_.time_to_first_token = now - request_->submitted();
  }
  last_latency_ = now - std::exchange(last_token_, now);
  const RequestSpec& spec = request_->spec();
  if (spec.wants_first_choices && !reasoning_ && !std::exchange(chose_, true)) {
    ReportChoices(logits);
  }
  const double logprob =
      spec.wants_logprob ? LogProbability(logits, tokenizer_->SayableTokens(), token) : kNotAsked;
  if (spec.wants_logprob) {
    generation_.mean_logprob += (logprob - generation_.mean_logprob) / ++asked_;
  }
  if (spec.wants_probability && !reasons_first()) {
    logprob_ += LogProbabilityAmongAllowed(logits, token);
  }
  if (reasoning_) return Reason(token, logprob, now);
  if (!grammar_) return Append(token, logprob, now);
  if (tokenizer_->IsEndOfGeneration(token)) return FinishReason::kStop;
  allowed_.clear();
  pending_ = Pending{.token = token, .logprob = logprob};
  return AppendPending(now, work);
}

absl::StatusOr<std::optional<FinishReason>> Sequence::AppendPending(MonotonicTime now,
                                                                    int64_t* work) {
  const absl::StatusOr<std::vector<int32_t>> tokens =
      AcceptWithForced(&*grammar_, &*pending_, Room(), can_complete_, work);
  waits_ = absl::IsUnavailable(tokens.status());
  if (waits_) return std::optional<FinishReason>();
  RETURN_IF_ERROR(tokens.status());
  const Pending sampled = *std::exchange(pending_, std::nullopt);
  return AppendConstrained(*tokens, (*tokens)[0] == sampled.token ? sampled.logprob : kNotAsked,
                           now);
}

absl::StatusOr<std::optional<FinishReason>> Sequence::Follow(int64_t* work) {
  const int64_t before = *work;
  absl::StatusOr<std::optional<FinishReason>> end = std::optional<FinishReason>();
  if (pending_) end = AppendPending(MonotonicTime::Now(), work);
  if (end.ok() && !end->has_value() && !ready() && !pending_) {
    const absl::Status status = FillAllowed(work);
    waits_ = absl::IsUnavailable(status);
    if (!waits_) grammar_status_ = status;
  }
  followed_ += before - *work;
  const bool limited = request_->spec().options.timeout_ms > 0;
  if (limited && TimeLeft() <= absl::ZeroDuration()) request_->Expire();
  return end;
}

// The most tokens that the answer, or the reasoning before it, may still get.
int32_t Sequence::Room() const {
  const auto size = static_cast<int32_t>(tokens_.size());
  if (reasoning_ && reasoning_->has_begun()) {
    return std::min(std::max(reasoning_->left(), 0) + kMostClosingTokens, token_limit_ - size);
  }
  return std::min(MostAnswerTokens(request_->spec().options) - (size - answer_begin_),
                  token_limit_ - size);
}

absl::Status Sequence::FillAllowed(int64_t* work) {
  Allowed allowed{.can_complete = can_complete_, .is_far = far_at_ == tokens_.size()};
  const absl::Status status = FillAllowed(&*grammar_, Room(), work, &allowed);
  can_complete_ = allowed.can_complete;
  if (allowed.is_far) far_at_ = tokens_.size();
  RETURN_IF_ERROR(status);
  led_to_end_ = led_to_end_ || allowed.left_out;
  allowed_ = std::move(allowed.mask);
  return absl::OkStatus();
}

absl::Status Sequence::FillAllowed(GrammarMatcher* grammar, int32_t room, int64_t* work,
                                   Allowed* allowed) const {
  allowed->mask.resize(grammar->mask_words());
  // (Between the turns of a mask nothing else is to be asked of the grammar.)
  if (!completes() || allowed->is_far) {
    return grammar->FillMask(absl::MakeSpan(allowed->mask), work);
  }
  if (!allowed->can_complete) {
    ASSIGN_OR_RETURN(const int32_t needed, grammar->TokensToEnd(work));
    // Tokens of the model's own may lead there in fewer, but not if each were the longest one.
    if (needed > int64_t{room} * grammar->longest_token()) return CutShort(FinishReason::kLength);
    allowed->is_far = needed > room;
    if (allowed->is_far) return grammar->FillMask(absl::MakeSpan(allowed->mask), work);
    allowed->can_complete = true;
  }
  return grammar->FillMaskToEnd(room, absl::MakeSpan(allowed->mask), &allowed->left_out, work);
}

// Streams the token, with the text that is certain since it.
void Sequence::Publish(int32_t token, double logprob, MonotonicTime now) {
  request_->PublishToken({.token = token,
                          .piece = generation_.text.substr(streamed_bytes_),
                          .logprob = logprob,
                          .since_submission = now - request_->submitted()});
  streamed_bytes_ = generation_.text.size();
}

absl::StatusOr<absl::Span<const uint64_t>> Sequence::AllowedTokens() const {
  RETURN_IF_ERROR(grammar_status_);
  return Mask(allowed_);
}

// The grammar's mask; where there is no grammar, the tokens that the model may say.
absl::Span<const uint64_t> Sequence::Mask(absl::Span<const uint64_t> of_grammar) const {
  return grammar_ ? of_grammar : tokenizer_->SayableTokens();
}

// The tokens of the sampled token's text and the text that the grammar forces behind it, cut as the
// tokenizer cuts both together: the first need not be the sampled token, which is not computed yet.
// Only the sampled token where the answer could be ended, and could not behind the forced ones.
// Unavailable where *work is spent: `sampled` then knows how far the grammar is, for another call.
absl::StatusOr<std::vector<int32_t>> Sequence::AcceptWithForced(GrammarMatcher* grammar,
                                                                Pending* sampled, int32_t room,
                                                                bool can_complete,
                                                                int64_t* work) const {
  if (!sampled->accepted) RETURN_IF_ERROR(grammar->Accept(sampled->token, work));
  sampled->accepted = true;
  auto tokenize = [this](absl::string_view text) { return AnswerTokens(*tokenizer_, text); };
  const absl::string_view own = tokenizer_->TokenBytes(sampled->token);
  if (!sampled->cut_with_forced) {
    ASSIGN_OR_RETURN(sampled->tokens, grammar->ForcedTokens(tokenize, own, work));
    sampled->cut_with_forced = true;
  }
  if (sampled->tokens.empty()) {
    ASSIGN_OR_RETURN(sampled->tokens, grammar->ForcedTokens(tokenize, /*tail=*/"", work));
    sampled->tokens.insert(sampled->tokens.begin(), sampled->token);
  }
  std::string text;
  for (int32_t t : sampled->tokens) absl::StrAppend(&text, tokenizer_->TokenBytes(t));
  if (text.size() > own.size()) {
    if (!sampled->followed_forced) {
      RETURN_IF_ERROR(grammar->AcceptBytes(absl::string_view(text).substr(own.size()), work));
      sampled->followed_forced = true;
    }
    const int32_t left = room - static_cast<int32_t>(sampled->tokens.size());
    const absl::StatusOr<bool> fits = can_complete ? FitsWithForced(grammar, left, work) : true;
    RETURN_IF_ERROR(fits.status());
    if (!*fits) {
      RETURN_IF_ERROR(grammar->Rollback(1));
      sampled->tokens = {sampled->token};
    }
  }
  return sampled->tokens;
}

// Whether the answer can still be ended in `room` tokens. That is not certain behind forced tokens:
// the tokenizer may cut the forced text into more tokens than necessary.
absl::StatusOr<bool> Sequence::FitsWithForced(GrammarMatcher* grammar, int32_t room,
                                              int64_t* work) const {
  if (!completes() || grammar->IsNearEverywhere(room)) return true;
  ASSIGN_OR_RETURN(const int32_t needed, grammar->TokensToEnd(work));
  return needed <= room;
}

int32_t Sequence::ExtendGuess(absl::Span<const int32_t> draft, int32_t most, int64_t* work) {
  assert(ready() && grammar_status_.ok() && !scoring() && !embedding());
  Guess guess;
  if (guess_) {
    guess = *std::move(guess_);
    guess_.reset();
  } else {
    guess = {.tokens = tokens_, .grammar = grammar_, .can_complete = can_complete_};
  }
  // A token more is sampled behind the last guessed one, so there must be room for it.
  most = std::min(most, Room() - 1);
  int32_t used = 0;
  while (used < static_cast<int32_t>(draft.size())) {
    const std::vector<int32_t> added = GuessNext(draft[used], most, work, &guess);
    if (added.empty()) break;
    const auto in_both =
        std::mismatch(added.begin(), added.end(), draft.begin() + used, draft.end());
    used = static_cast<int32_t>(in_both.second - draft.begin());
    if (in_both.first != added.end()) break;  // the grammar forces another text than the draft
  }
  if (!guess.points.empty()) guess_ = std::move(guess);
  return used;
}

// Adds a token to the guess, with the tokens that the grammar forces behind it, and returns them;
// none where the grammar does not allow the token, the answer would end, or there is no room.
std::vector<int32_t> Sequence::GuessNext(int32_t token, int32_t most, int64_t* work,
                                         Guess* guess) const {
  const auto guessed = static_cast<int32_t>(guess->tokens.size() - tokens_.size());
  if (guessed >= most || tokenizer_->IsEndOfGeneration(token)) return {};
  Pending next{.token = token, .tokens = {token}};
  Allowed allowed{.can_complete = guess->can_complete};
  if (grammar_) {
    if (!guess->grammar) return {};
    const int32_t room = Room() - guessed;
    const absl::Span<const uint64_t> mask =
        guess->points.empty() ? allowed_ : guess->points.back().allowed;
    if (!IsInMask(mask, token)) return {};
    next.tokens.clear();
    const auto tokens = AcceptWithForced(&*guess->grammar, &next, room, guess->can_complete, work);
    const bool goes_on = tokens.ok() && !guess->grammar->IsComplete() &&
                         guessed + static_cast<int32_t>(tokens->size()) <= most;
    if (!goes_on ||
        !FillAllowed(&*guess->grammar, room - static_cast<int32_t>(tokens->size()), work, &allowed)
             .ok()) {
      guess->grammar.reset();  // it may stand behind the token, which is not guessed
      return {};
    }
    guess->can_complete = allowed.can_complete;
  }
  guess->tokens.insert(guess->tokens.end(), next.tokens.begin(), next.tokens.end());
  guess->points.push_back(
      {.end = static_cast<int32_t>(guess->tokens.size()), .allowed = std::move(allowed.mask)});
  return std::move(next.tokens);
}

bool Sequence::Reaches(const GuessedPoint& point) const {
  return ready() && grammar_status_.ok() && static_cast<int32_t>(tokens_.size()) == point.end &&
         allowed_ == point.allowed &&
         std::equal(tokens_.begin() + computed_, tokens_.end(), guess_->tokens.begin() + computed_);
}

// REQUIRES: the constraint is not whole before the last of the tokens.
std::optional<FinishReason> Sequence::AppendConstrained(absl::Span<const int32_t> tokens,
                                                        double sampled, MonotonicTime now) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    const std::optional<FinishReason> finish = Append(tokens[i], i == 0 ? sampled : kNotAsked, now);
    if (!finish || (i + 1 == tokens.size() && AnswerIsWhole())) continue;
    cut_in_forced_ = i + 1 < tokens.size();
    return finish;
  }
  return AnswerIsWhole() ? std::optional(FinishReason::kStop) : std::nullopt;
}

std::optional<FinishReason> Sequence::Append(int32_t token, double logprob, MonotonicTime now) {
  if (tokenizer_->IsEndOfGeneration(token)) return FinishReason::kStop;
  tokens_.push_back(token);
  // A constraint's text begins behind the reasoning.
  const bool stopped = !reasons_first() && answer_text_.Append(token, &generation_.text);
  if (request_->spec().stream) Publish(token, logprob, now);
  return stopped ? FinishReason::kStop : LimitReached();
}

std::optional<FinishReason> Sequence::LimitReached() const {
  const auto size = static_cast<int32_t>(tokens_.size());
  const bool in_answer = !reasoning_ || !reasoning_->has_begun();
  if (in_answer && size - answer_begin_ >= MostAnswerTokens(request_->spec().options)) {
    return FinishReason::kLength;
  }
  return size >= token_limit_ ? std::optional(FinishReason::kContext) : std::nullopt;
}

// Takes a token of the reasoning; behind the last one the answer begins.
absl::StatusOr<std::optional<FinishReason>> Sequence::Reason(int32_t token, double logprob,
                                                             MonotonicTime now) {
  ASSIGN_OR_RETURN(const Reasoning::Turn turn, reasoning_->Take(token));
  for (int32_t t : turn.tokens) {
    const std::optional<FinishReason> end = Append(t, t == token ? logprob : kNotAsked, now);
    if (end.has_value()) return end;
  }
  if (!turn.ends) return std::optional<FinishReason>();
  if (reasoning_->has_begun()) {
    if (reasons_first()) {
      for (int32_t t : request_->spec().begun) {
        if (const std::optional<FinishReason> end = Append(t, kNotAsked, now)) return end;
      }
    }
    answer_begin_ = static_cast<int32_t>(tokens_.size()) - turn.of_answer;
    asked_ = turn.of_answer;
    generation_.mean_logprob = asked_ > 0 && !std::isnan(logprob) ? logprob : 0;
  }
  reasoning_.reset();
  if (request_->spec().constraint == nullptr) return LimitReached();
  return BeginConstrained(now);
}

// Whether the grammar allows nothing behind the answer.
bool Sequence::AnswerIsWhole() const { return grammar_->IsComplete(); }

bool Sequence::IsAllowed(int32_t token) const { return IsInMask(Mask(allowed_), token); }

double Sequence::LogProbabilityAmongAllowed(absl::Span<const float> logits, int32_t token) const {
  // At most 0, whatever is rounded: the token's own share is 1.
  double others = 1;
  for (int32_t other = 0; other < static_cast<int32_t>(logits.size()); ++other) {
    if (other == token || !IsAllowed(other)) continue;
    others += std::exp(double{logits[other]} - double{logits[token]});
  }
  return -std::log(others);
}

void Sequence::ReportChoices(absl::Span<const float> logits) {
  std::vector<float> biased;
  if (!request_->spec().options.logit_bias.empty()) {
    biased.assign(logits.begin(), logits.end());
    for (const auto& [token, bias] : request_->spec().options.logit_bias) {
      const double sum = double{biased[token]} + bias;
      biased[token] = static_cast<float>(std::clamp(sum, -kMostBiased, kMostBiased));
    }
    logits = biased;
  }
  const double total = LogSumExp(logits, tokenizer_->SayableTokens());
  std::string given;
  for (size_t i = answer_begin_; i < tokens_.size(); ++i) {
    absl::StrAppend(&given, tokenizer_->TokenBytes(tokens_[i]));
  }
  for (int32_t token = 0; token < static_cast<int32_t>(logits.size()); ++token) {
    if (!IsAllowed(token)) continue;
    const absl::string_view said = tokenizer_->TokenBytes(token);
    generation_.first_choices.push_back(
        {said.empty() ? "" : absl::StrCat(given, said), static_cast<float>(logits[token] - total)});
  }
}

absl::Status Sequence::Score(int32_t position, absl::Span<const float> logits) {
  assert(scoring() && position + 1 < prompt_tokens_);
  RETURN_IF_ERROR(CheckFinite(logits));
  // A token that is scored again, after a preemption, has the same number.
  if (position < static_cast<int32_t>(generation_.prompt_logprobs.size())) return absl::OkStatus();
  const double logprob = LogProbability(logits, tokenizer_->SayableTokens(), tokens_[position + 1]);
  generation_.prompt_logprobs.push_back(static_cast<float>(logprob));
  return absl::OkStatus();
}

Sequence::Range Sequence::PooledAmong(int32_t position, int32_t count) const {
  switch (*request_->spec().embed) {
    case Pooling::kMean:
      break;
    case Pooling::kFirst:
      return {0, position == 0 ? 1 : 0};
    case Pooling::kLast:
      return {position + count == prompt_tokens_ ? count - 1 : count, count};
  }
  return {0, count};
}

absl::Status Sequence::Pool(int32_t position, absl::Span<const float> hidden) {
  assert(embedding());
  for (float value : hidden) {
    if (!std::isfinite(value)) {
      return absl::InternalError(absl::StrCat("the hidden state of token ", position,
                                              " is not finite; the model's weights are damaged"));
    }
  }
  if (position < pooled_until_) return absl::OkStatus();  // again, after a preemption
  pooled_until_ = position + 1;
  pooled_.resize(hidden.size());
  for (size_t i = 0; i < hidden.size(); ++i) pooled_[i] += hidden[i];
  return absl::OkStatus();
}

Generation Sequence::TakeResult(FinishReason finish, MonotonicTime now) {
  if (reasons_first() || (grammar_ && (cut_in_forced_ || !grammar_->CanEnd()))) {
    return TakeError(CutShort(finish), now);
  }
  if (answer_tokens() > 0 && answer_text_.LacksAnswer(finish)) {
    return TakeError(NoAnswerError(finish, answer_tokens(), request_->spec().options), now);
  }
  Generation result = std::move(generation_);
  // Doubles, added in the order of the tokens: neither batches nor chunks can change the mean.
  const double rows = request_->spec().embed == Pooling::kMean ? prompt_tokens_ : 1;
  for (double sum : pooled_) result.embedding.push_back(static_cast<float>(sum / rows));
  answer_text_.Finish(&result.text);
  if (request_->spec().stream && result.text.size() > streamed_bytes_) {
    request_->PublishToken({.piece = result.text.substr(streamed_bytes_),
                            .since_submission = now - request_->submitted()});
  }
  if (request_->spec().wants_probability) {
    result.first_choices = {{result.text, static_cast<float>(logprob_)}};
  }
  result.finish = finish;
  if (led_to_end_) {
    const bool by_context = token_limit_ - answer_begin_ < request_->spec().options.max_tokens;
    result.finish = by_context ? FinishReason::kContext : FinishReason::kLength;
  }
  const bool constrained = request_->spec().constraint != nullptr;
  result.tokens.assign(tokens_.begin() + (constrained ? answer_begin_ : prompt_tokens_),
                       tokens_.end());
  result.tokens_out = answer_tokens();
  result.total = now - request_->submitted();
  result.queued = std::min(result.queued, result.total);
  return result;
}

// For the error of an answer that must be complete: how many tokens let it be led to its end from
// the first one on. Empty where that is not known.
std::string Sequence::EnoughTokens() const {
  if (!completes()) return "";
  const CompiledConstraint& constraint = *request_->spec().constraint;
  const absl::StatusOr<int32_t> needed = GrammarMatcher(constraint.begin).TokensToEnd();
  if (!needed.ok()) return "";
  if (*needed == GrammarMatcher::kTooFar) return ": the shortest has thousands of bytes";
  return absl::StrCat(": ", constraint.start.size() + static_cast<size_t>(*needed),
                      " tokens are enough");
}

// The error of an answer that a limit ended in the middle of its grammar.
absl::Status Sequence::CutShort(FinishReason finish) const {
  constexpr size_t kShownBytes = 60;
  absl::string_view shown = absl::string_view(generation_.text).substr(0, kShownBytes);
  shown = shown.substr(0, ValidUtf8Prefix(shown));
  const GenerationOptions& options = request_->spec().options;
  const bool by_context =
      finish == FinishReason::kContext || token_limit_ - answer_begin_ < options.max_tokens;
  return absl::OutOfRangeError(absl::StrCat(
      by_context ? absl::StrCat("the context of ", token_limit_, " tokens")
                 : absl::StrCat("max_tokens = ", options.max_tokens),
      " ended the answer before it was whole by its ", ConstraintName(options.constraint.kind),
      EnoughTokens(), "; it begins with '", Printable(shown), "'"));
}

Generation Sequence::TakeError(absl::Status status, MonotonicTime now) {
  Generation result;
  result.status = std::move(status);
  result.tokens_in = prompt_tokens_;
  result.tokens_cached = generation_.tokens_cached;
  result.tokens_out = answer_tokens();  // they were made, though they are of no use
  result.time_to_first_token = generation_.time_to_first_token;
  result.total = now - request_->submitted();
  result.queued = std::min(generation_.queued, result.total);
  return result;
}

}  // namespace lm
