#include "engine/runtime/vote.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "engine/base/json.h"
#include "engine/base/monotonic_time.h"
#include "engine/base/out_of_memory.h"
#include "engine/base/printable.h"
#include "engine/runtime/answer_form.h"
#include "engine/runtime/answer_text.h"
#include "engine/runtime/constraint_cache.h"
#include "engine/text/same_words.h"

namespace lm {
namespace {

constexpr double kShareRounding = 1e-3;  // of the sum of all shares
// How far a share's parts may be from whole ones; those of another number are further.
constexpr double kPartRounding = 1e-3;
static_assert(kPartRounding < 0.5 / kMostVotes);
// Of what a tie is between.
constexpr size_t kMostNamed = 3;
constexpr size_t kMostShown = 60;  // bytes

// Not one that was nothing but reasoning.
bool Says(const Generation& answer) { return answer.status.ok(); }

// Of all of them the tokens; of the last one the time.
Generation SumOf(absl::Span<const Generation> answers) {
  Generation sum{.finish = FinishReason::kStop};
  for (const Generation& answer : answers) {
    sum.tokens_in += answer.tokens_in;
    sum.in_vain += answer.in_vain;
    sum.tokens_cached += answer.tokens_cached;
    sum.tokens_out += answer.tokens_out;
    sum.queued = std::max(sum.queued, answer.queued);
    sum.time_to_first_token = std::max(sum.time_to_first_token, answer.time_to_first_token);
    sum.total = std::max(sum.total, answer.total);
  }
  return sum;
}

RequestSpec BallotOf(const RequestSpec& spec, int32_t number) {
  RequestSpec ballot = spec;
  GenerationOptions& options = ballot.options;
  options.temperature = TemperatureOf(options);
  // Another seed of the vote's is another of each of its ballots.
  options.seed =
      options.seed * static_cast<uint64_t>(NumDrawn(options)) + static_cast<uint64_t>(number);
  ballot.wants_logprob = options.best_of > 0;
  options.vote = options.n = options.best_of = 0;
  ballot.wants_first_choices = false;
  return ballot;
}

// The requests of one vote that are under way. Held by those who listen to them; thread-safe.
class Vote : public std::enable_shared_from_this<Vote> {
 public:
  explicit Vote(std::shared_ptr<Request> request) : request_(std::move(request)) {}

  absl::Status Begin(Generator& generator) {
    const int32_t wanted = NumDrawn(request_->spec().options);
    {
      absl::MutexLock lock(&mutex_);
      answers_.resize(wanted);
      ballots_.reserve(wanted);
      expected_ = wanted;
    }
    absl::Cleanup failed = [this] { End(/*cancel=*/true); };
    for (int32_t i = 0; i < wanted; ++i) {
      absl::StatusOr<std::shared_ptr<Request>> ballot = generator.Submit(
          BallotOf(request_->spec(), i), std::make_shared<Ballot>(shared_from_this(), i));
      if (!ballot.ok()) return ballot.status();
      absl::ReleasableMutexLock lock(&mutex_);
      if (!over_ && !gives_up_) {
        ballots_.push_back(*std::move(ballot));
        continue;
      }
      expected_ = i + 1;
      lock.Release();
      (*ballot)->Cancel();
      break;
    }
    std::move(failed).Cancel();
    ConcludeIfAllAnswered();
    return absl::OkStatus();
  }

  // Nobody waits any more, or its time is over.
  void Abandon() noexcept {
    if (!End(/*cancel=*/true)) return;
    Generation result;
    try {
      result.status = request_->AbandonedStatus();
    } catch (...) {
      result.status = OutOfMemory();
    }
    request_->Finish(std::move(result));
  }

  void Raise() noexcept {
    std::vector<std::shared_ptr<Request>> ballots;
    try {
      absl::MutexLock lock(&mutex_);
      ballots = ballots_;
    } catch (...) {  // no memory: they stay as they are
    }
    for (const std::shared_ptr<Request>& ballot : ballots) ballot->Raise();
  }

  // Nobody else waits for a ballot.
  void KeepDeadlines() noexcept {
    for (size_t i = 0;; ++i) {
      std::shared_ptr<Request> ballot;
      {
        absl::MutexLock lock(&mutex_);
        if (i >= ballots_.size()) return;
        ballot = ballots_[i];
      }
      ballot->KeepDeadline();
    }
  }

 private:
  // Hears of one ballot.
  class Ballot : public RequestListener {
   public:
    Ballot(std::shared_ptr<Vote> vote, int32_t number) : vote_(std::move(vote)), number_(number) {}
    void OnFinished(const Request& ballot) noexcept override {
      vote_->Take(number_, ballot.result());
    }

   private:
    const std::shared_ptr<Vote> vote_;
    const int32_t number_;
  };

  void Take(int32_t number, const Generation& answer) noexcept {
    const bool fails = !answer.status.ok() && !IsNoAnswer(answer.status);
    const bool of_its_draw = absl::IsOutOfRange(answer.status);  // a function of its seed
    try {
      std::vector<std::shared_ptr<Request>> others;
      {
        absl::MutexLock lock(&mutex_);
        if (over_) return;
        answers_[number] = answer;
        ++answered_;
        if (fails && (failure_.ok() || (!gives_up_ && number < failed_))) {
          failure_ = answer.status;
          failed_ = number;
        }
        if (fails && !of_its_draw && !std::exchange(gives_up_, true)) others = ballots_;
      }
      for (const std::shared_ptr<Request>& other : others) other->Cancel();
      ConcludeIfAllAnswered();
    } catch (...) {
      Generation result;
      result.status = OutOfMemory();
      if (End(/*cancel=*/true)) request_->Finish(std::move(result));
    }
  }

  // Where one has failed the others, which may be given up, are waited for: until they have ended
  // it is not known what they took.
  void ConcludeIfAllAnswered() noexcept {
    Generation result;
    try {
      absl::ReleasableMutexLock lock(&mutex_);
      if (over_ || answered_ < expected_ || std::exchange(concludes_, true)) return;
      const std::vector<Generation> answers = std::move(answers_);
      const absl::Status failure = failure_;
      lock.Release();
      const bool none = std::none_of(answers.begin(), answers.end(), Says);
      if (!failure.ok() || none) {
        result = SumOf(answers);
        result.finish = FinishReason::kError;
        result.status = failure.ok() ? answers.back().status : failure;
      } else {
        const bool votes = request_->spec().options.vote > 0;
        result = (votes ? CountVotes : PickSamples)(request_->spec(), answers);
      }
    } catch (...) {
      result = {};
      result.status = OutOfMemory();
    }
    if (End(/*cancel=*/false)) request_->Finish(std::move(result));
  }

  // False where it was over already. `cancel`: ballots may still be under way.
  bool End(bool cancel) noexcept {
    std::vector<std::shared_ptr<Request>> ballots;
    {
      absl::MutexLock lock(&mutex_);
      if (std::exchange(over_, true)) return false;
      ballots.swap(ballots_);
    }
    for (const std::shared_ptr<Request>& ballot : ballots) {
      if (cancel) ballot->Cancel();
    }
    return true;
  }

  const std::shared_ptr<Request> request_;
  absl::Mutex mutex_;
  std::vector<Generation> answers_ ABSL_GUARDED_BY(mutex_);  // by the ballots' numbers
  int32_t answered_ ABSL_GUARDED_BY(mutex_) = 0;
  int32_t expected_ ABSL_GUARDED_BY(mutex_) = 0;
  // That of the first ballot, by number, whose draw failed; else the first that came, for which the
  // others are given up.
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  int32_t failed_ ABSL_GUARDED_BY(mutex_) = 0;  // the ballot
  bool gives_up_ ABSL_GUARDED_BY(mutex_) = false;
  bool concludes_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::shared_ptr<Request>> ballots_ ABSL_GUARDED_BY(mutex_);
  bool over_ ABSL_GUARDED_BY(mutex_) = false;
};

// Listens to the vote's own request.
class Voter : public ForwardingListener {
 public:
  using ForwardingListener::ForwardingListener;

  void OnAbandoned(Request& request) noexcept override {
    ForwardingListener::OnAbandoned(request);
    if (const std::shared_ptr<Vote> vote = vote_.lock()) vote->Abandon();
  }
  void OnRaised(Request&) noexcept override {
    if (const std::shared_ptr<Vote> vote = vote_.lock()) vote->Raise();
  }
  void OnWaiting(Request&) noexcept override {
    if (const std::shared_ptr<Vote> vote = vote_.lock()) vote->KeepDeadlines();
  }

  void set_vote(const std::shared_ptr<Vote>& vote) { vote_ = vote; }

 private:
  std::weak_ptr<Vote> vote_;
};

// Texts that say the same have the same of this.
std::string WhatIsSaid(AnswerConstraint::Kind kind, const std::string& text) {
  if (kind == AnswerConstraint::Kind::kNone) return WordsOf(text);
  if (!IsJson(kind)) return text;
  const std::optional<Json> value = Json::Parse(text);  // none, where it was cut
  return value.has_value() ? value->Dump() : text;
}

}  // namespace

absl::Status CheckDrawn(const RequestSpec& spec) {
  if (NumDrawn(spec.options) == 0) return absl::OkStatus();
  const bool generates = !spec.score_prompt && !spec.embed.has_value();
  if (spec.options.vote == 0) {
    if (generates && !spec.stream && !spec.wants_first_choices) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "n and best_of are for answers that are generated, and known at their end");
  }
  if (!generates) {
    return absl::InvalidArgumentError("vote is for answers that are generated");
  }
  if (spec.stream) {
    return absl::InvalidArgumentError("vote: its answer is known at its end, and has no pieces");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<Request>> SubmitRequest(Generator& generator, RequestSpec spec,
                                                       std::shared_ptr<RequestListener> listener) {
  if (NumDrawn(spec.options) == 0) return generator.Submit(std::move(spec), std::move(listener));
  auto voter = std::make_shared<Voter>(std::move(listener));
  auto request = std::make_shared<Request>(std::move(spec));
  auto vote = std::make_shared<Vote>(request);
  voter->set_vote(vote);
  request->set_listener(std::move(voter));
  if (absl::Status begun = vote->Begin(generator); !begun.ok()) return begun;
  return request;
}

Generation CountVotes(const RequestSpec& spec, absl::Span<const Generation> ballots) {
  Generation sum = SumOf(ballots);
  struct Votes {
    int64_t count = 0;
    const Generation* first = nullptr;  // drawn
  };
  std::map<std::string, Votes> said;
  int64_t num_votes = 0;
  for (const Generation& ballot : ballots) {
    if (!Says(ballot)) continue;
    ++num_votes;
    Votes& votes = said[WhatIsSaid(spec.options.constraint.kind, ballot.text)];
    ++votes.count;
    if (votes.first == nullptr) votes.first = &ballot;
  }
  int64_t most = 0;
  for (const auto& [text, votes] : said) most = std::max(most, votes.count);
  std::vector<const Generation*> first;
  for (const auto& [text, votes] : said) {
    const double share = static_cast<double>(votes.count) / static_cast<double>(num_votes);
    sum.first_choices.push_back({votes.first->text, static_cast<float>(std::log(share))});
    if (!spec.wants_first_choices && votes.count == most) first.push_back(votes.first);
  }
  if (first.size() > 1) {
    const size_t others = first.size() - std::min(first.size(), kMostNamed);
    first.resize(first.size() - others);
    const std::string names = absl::StrJoin(first, " and ", [](std::string* out, const auto* one) {
      absl::StrAppend(out, "'", Printable(absl::string_view(one->text).substr(0, kMostShown)), "'");
    });
    sum.status = absl::FailedPreconditionError(
        absl::StrCat("a tie: ", names, others > 0 ? absl::StrCat(" and ", others, " others") : "",
                     " have ", most, " of ", num_votes, " votes each"));
  } else if (first.size() == 1) {
    sum.text = first.front()->text;
    sum.finish = first.front()->finish;
  }
  return sum;
}

double ShareOfVotes(double share, int32_t asked) {
  for (int32_t counted = 1; counted <= asked; ++counted) {
    const double part = std::round(share * counted);
    if (std::abs(share * counted - part) < kPartRounding) return part / counted;
  }
  return share;
}

Generation PickSamples(const RequestSpec& spec, absl::Span<const Generation> samples) {
  Generation picked = SumOf(samples);
  std::vector<const Generation*> best;
  for (const Generation& sample : samples) best.push_back(&sample);
  if (spec.options.best_of > 0) {
    std::stable_sort(best.begin(), best.end(), [](const Generation* a, const Generation* b) {
      return std::pair(Says(*a), a->mean_logprob) > std::pair(Says(*b), b->mean_logprob);
    });
  }
  best.resize(std::max(spec.options.n, 1));
  for (const Generation* sample : best) {
    if (Says(*sample) && sample->finish != FinishReason::kStop) picked.finish = sample->finish;
  }
  if (spec.options.n == 0) {
    picked.text = best[0]->text;
    picked.tokens = best[0]->tokens;
    return picked;
  }
  const bool values = IsJson(spec.options.constraint.kind);
  picked.text = absl::StrCat("[",
                             absl::StrJoin(best, ",",
                                           [values](std::string* out, const Generation* one) {
                                             if (!Says(*one)) {
                                               absl::StrAppend(out, "null");
                                             } else {
                                               absl::StrAppend(
                                                   out, values ? one->text : JsonString(one->text));
                                             }
                                           }),
                             "]");
  return picked;
}

namespace {

bool CanBeSamples(const RequestSpec& spec, const RememberedAnswer& answer,
                  absl::FunctionRef<bool(const RequestSpec&, const RememberedAnswer&)> can_be_one) {
  if (spec.options.n == 0) {
    RequestSpec one = spec;
    one.options.best_of = 0;
    RememberedAnswer its = answer;
    const int32_t drawn = spec.options.best_of;
    if (answer.tokens_in % drawn != 0) return false;
    its.tokens_in /= drawn;
    its.tokens_out = static_cast<int32_t>(its.tokens.size());
    return answer.tokens_out >= its.tokens_out && can_be_one(one, its);
  }
  const AnswerConstraint& constraint = spec.options.constraint;
  const std::optional<Json> array = Json::Parse(answer.text);
  if (!array.has_value() || !array->is_array() || !answer.tokens.empty()) return false;
  if (array->size() != static_cast<size_t>(spec.options.n)) return false;
  if (answer.finish == FinishReason::kError || !answer.first_choices.empty()) return false;
  const bool values = IsJson(constraint.kind);
  absl::StatusOr<std::shared_ptr<const Grammar>> grammar = std::shared_ptr<const Grammar>();
  if (constraint.kind != AnswerConstraint::Kind::kNone) grammar = CompileNotation(constraint);
  if (!grammar.ok()) return false;
  const bool may_lack =
      constraint.kind == AnswerConstraint::Kind::kNone && spec.options.thinking == Thinking::kDrop;
  bool says = false;
  const bool are_samples =
      std::all_of(array->array().begin(), array->array().end(), [&](const Json& one) {
        if (may_lack && one.is_null()) return true;
        says = true;
        if (!values && !one.is_string()) return false;
        return *grammar == nullptr ||
               IsAnswer(constraint, **grammar, values ? CanonicalJson(one) : one.string());
      });
  return are_samples && says;
}

}  // namespace

bool CanBeVote(const RequestSpec& spec, const RememberedAnswer& answer) {
  const AnswerConstraint& constraint = spec.options.constraint;
  const bool is_free = constraint.kind == AnswerConstraint::Kind::kNone;
  if (!answer.tokens.empty() || answer.finish == FinishReason::kError) return false;
  if (!is_free && answer.finish != FinishReason::kStop) return false;
  absl::StatusOr<std::shared_ptr<const Grammar>> grammar = std::shared_ptr<const Grammar>();
  if (!is_free) grammar = CompileNotation(constraint);
  if (!grammar.ok()) return false;
  // All that was said, of which the answer alone has the most.
  double sum = 0, share = 0, others = 0;
  for (const FirstChoice& choice : answer.first_choices) {
    if (!is_free && !IsAnswer(constraint, **grammar, choice.text)) return false;
    if (!std::isfinite(choice.logprob) || choice.logprob > 0) return false;
    const double part = std::exp(double{choice.logprob});
    sum += part;
    double& most = choice.text == answer.text ? share : others;
    most = std::max(most, part);
  }
  if (std::abs(sum - 1) > kShareRounding) return false;
  return spec.wants_first_choices ? answer.text.empty() : share > others;
}

bool CanBeDrawn(const RequestSpec& spec, const RememberedAnswer& answer,
                absl::FunctionRef<bool(const RequestSpec&, const RememberedAnswer&)> can_be_one) {
  if (NumDrawn(spec.options) == 0) return can_be_one(spec, answer);
  return spec.options.vote > 0 ? CanBeVote(spec, answer) : CanBeSamples(spec, answer, can_be_one);
}

}  // namespace lm
