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
#include "absl/time/clock.h"
#include "engine/base/json.h"
#include "engine/base/out_of_memory.h"
#include "engine/base/printable.h"

namespace lm {
namespace {

constexpr double kRounding = 1e-3;  // of the sum of all shares

RequestSpec BallotOf(const RequestSpec& spec, int32_t number) {
  RequestSpec ballot = spec;
  GenerationOptions& options = ballot.options;
  // Another seed of the vote's is another of each of its ballots.
  options.seed = options.seed * static_cast<uint64_t>(options.vote) + static_cast<uint64_t>(number);
  if (options.temperature == 0) options.temperature = 1;
  options.vote = 0;
  ballot.wants_first_choices = false;
  return ballot;
}

// The requests of one vote that are under way. Held by those who listen to them; thread-safe.
class Vote : public std::enable_shared_from_this<Vote> {
 public:
  explicit Vote(std::shared_ptr<Request> request) : request_(std::move(request)) {}

  absl::Status Begin(Generator& generator) {
    const int32_t wanted = request_->spec().options.vote;
    auto listener = std::make_shared<Ballot>(shared_from_this());
    {
      absl::MutexLock lock(&mutex_);
      answers_.reserve(wanted);
      ballots_.reserve(wanted);
    }
    absl::Cleanup failed = [this] { End(/*cancel=*/true); };
    for (int32_t i = 0; i < wanted; ++i) {
      absl::StatusOr<std::shared_ptr<Request>> ballot =
          generator.Submit(BallotOf(request_->spec(), i), listener);
      if (!ballot.ok()) return ballot.status();
      absl::ReleasableMutexLock lock(&mutex_);
      if (!over_) {
        ballots_.push_back(*std::move(ballot));
        continue;
      }
      lock.Release();
      (*ballot)->Cancel();
      break;
    }
    std::move(failed).Cancel();
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

  // Nobody else waits for a ballot.
  void KeepDeadlines() noexcept {
    const absl::Time now = absl::Now();
    for (size_t i = 0;; ++i) {
      std::shared_ptr<Request> ballot;
      {
        absl::MutexLock lock(&mutex_);
        if (i >= ballots_.size()) return;
        ballot = ballots_[i];
      }
      if (now >= ballot->deadline()) ballot->Expire();
    }
  }

 private:
  // Hears of each ballot.
  class Ballot : public RequestListener {
   public:
    explicit Ballot(std::shared_ptr<Vote> vote) : vote_(std::move(vote)) {}
    void OnFinished(const Request& ballot) noexcept override { vote_->Take(ballot.result()); }

   private:
    const std::shared_ptr<Vote> vote_;
  };

  void Take(const Generation& answer) noexcept {
    Generation result;
    try {
      absl::ReleasableMutexLock lock(&mutex_);
      if (over_) return;
      answers_.push_back(answer);
      const bool last = answers_.size() == static_cast<size_t>(request_->spec().options.vote);
      if (answer.status.ok() && !last) return;
      const std::vector<Generation> answers = std::move(answers_);
      lock.Release();
      result = answer.status.ok() ? CountVotes(request_->spec(), answers)
                                  : Generation{.status = answer.status};
    } catch (...) {
      result = {};
      result.status = OutOfMemory();
    }
    if (End(/*cancel=*/!result.status.ok())) request_->Finish(std::move(result));
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
  std::vector<Generation> answers_ ABSL_GUARDED_BY(mutex_);
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
  void OnWaiting(Request&) noexcept override {
    if (const std::shared_ptr<Vote> vote = vote_.lock()) vote->KeepDeadlines();
  }

  void set_vote(const std::shared_ptr<Vote>& vote) { vote_ = vote; }

 private:
  std::weak_ptr<Vote> vote_;
};

bool IsChoice(const Json& choices, const std::string& text) {
  return std::any_of(choices.array().begin(), choices.array().end(),
                     [&](const Json& choice) { return choice == Json(text); });
}

}  // namespace

absl::Status CheckVote(const RequestSpec& spec) {
  if (spec.options.vote == 0) return absl::OkStatus();
  const bool generates = !spec.score_prompt && !spec.embed.has_value();
  if (!generates || spec.options.constraint.kind != AnswerConstraint::Kind::kChoices) {
    return absl::InvalidArgumentError(
        "vote is for lm_classify, lm_if and lm_score, and for answers that are one of `choices`");
  }
  if (spec.stream) {
    return absl::InvalidArgumentError("vote: its answer is known at its end, and has no pieces");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<Request>> SubmitRequest(Generator& generator, RequestSpec spec,
                                                       std::shared_ptr<RequestListener> listener) {
  if (spec.options.vote == 0) return generator.Submit(std::move(spec), std::move(listener));
  auto voter = std::make_shared<Voter>(std::move(listener));
  auto request = std::make_shared<Request>(std::move(spec));
  auto vote = std::make_shared<Vote>(request);
  voter->set_vote(vote);
  request->set_listener(std::move(voter));
  if (absl::Status begun = vote->Begin(generator); !begun.ok()) return begun;
  return request;
}

Generation CountVotes(const RequestSpec& spec, absl::Span<const Generation> ballots) {
  Generation sum{.finish = FinishReason::kStop};
  std::map<std::string, int64_t> votes;
  for (const Generation& ballot : ballots) {
    ++votes[ballot.text];
    sum.tokens_in += ballot.tokens_in;
    sum.tokens_cached += ballot.tokens_cached;
    sum.tokens_out += ballot.tokens_out;
    sum.queued = std::max(sum.queued, ballot.queued);
    sum.time_to_first_token = std::max(sum.time_to_first_token, ballot.time_to_first_token);
    sum.total = std::max(sum.total, ballot.total);
  }
  int64_t most = 0;
  for (const auto& [text, count] : votes) most = std::max(most, count);
  std::vector<std::string> first;
  for (const auto& [text, count] : votes) {
    if (spec.wants_first_choices) {
      const double share = static_cast<double>(count) / static_cast<double>(ballots.size());
      sum.first_choices.push_back({text, static_cast<float>(std::log(share))});
    } else if (count == most) {
      first.push_back(text);
    }
  }
  if (first.size() > 1) {
    const std::string names = absl::StrJoin(first, " and ", [](std::string* out, const auto& one) {
      absl::StrAppend(out, "'", Printable(one), "'");
    });
    sum.status = absl::FailedPreconditionError(
        absl::StrCat("a tie: ", names, " have ", most, " of ", ballots.size(), " votes each"));
  } else if (first.size() == 1) {
    sum.text = first.front();
  }
  return sum;
}

bool CanBeVote(const RequestSpec& spec, const RememberedAnswer& answer) {
  const std::optional<Json> choices = Json::Parse(spec.options.constraint.text);
  if (!choices.has_value() || !choices->is_array()) return false;
  if (answer.finish != FinishReason::kStop || !answer.tokens.empty()) return false;
  if (!spec.wants_first_choices) {
    return answer.first_choices.empty() && IsChoice(*choices, answer.text);
  }
  double sum = 0;
  for (const FirstChoice& choice : answer.first_choices) {
    if (!IsChoice(*choices, choice.text)) return false;
    if (!std::isfinite(choice.logprob) || choice.logprob > 0) return false;
    sum += std::exp(double{choice.logprob});
  }
  return answer.text.empty() && std::abs(sum - 1) <= kRounding;
}

}  // namespace lm
